"""The walk over a graph: each node calls its operator's function; what is known is folded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from jq.base.errors import JqError, UserError
from jq.base.from_jax import said
from jq.frontends.onnx import inference
from jq.frontends.onnx.graph import File, Function, Graph, Node, Reference
from jq.frontends.onnx.operand_shapes import require_shapes
from jq.frontends.onnx.registry import OPERATORS, TFLITE, Call, Operator, bind
from jq.frontends.onnx.values import Codes, Value, known, plain, signed_type, to_signed, traced
from jq.ir.decisions import ROUNDED

_LAYOUTS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")  # of ONNX Runtime's optimizer
# No program has a size for what they give, and what reads it would take rows that fill it for real.
_COUNTED = {("", "NonMaxSuppression"): ", how many results it has depends on the data"}
_OLDEST = 7  # version of the standard's operators
_FOLD = 1 << 22  # elements; more than this is computed in the program


@dataclass(frozen=True)
class Scope:
    """Surroundings of a graph's nodes: values by name, versions, a function's attributes."""

    env: dict[str, Value]
    opsets: Mapping[str, int]
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Walk:
    """Evaluates the graphs of one file on values (see `jq.frontends.onnx.values`)."""

    def __init__(self, file: File, note: Callable[[str], None] = lambda text: None) -> None:
        self.file, self.note = file, note

    def run(
        self, graph: Graph, inputs: Sequence[Value], around: Mapping[str, Value] | None = None
    ) -> list[Value]:
        """Outputs of the graph; `around` are values to use in place of its initializers."""
        env: dict[str, Value] = {**graph.initializers, **(around or {})}
        env |= dict(zip(graph.inputs, inputs, strict=True))
        return self._nodes(graph, Scope(env, self.file.opsets))

    def _nodes(self, graph: Graph, scope: Scope) -> list[Value]:
        scope.env[""] = None
        for node in graph.nodes:
            for name, value in zip(node.outputs, self._node(node, scope), strict=False):
                if name:
                    scope.env[name] = value
        # A definition may leave out what its call does not ask for.
        return [scope.env.get(name) for name in graph.outputs]

    def _node(self, node: Node, scope: Scope) -> Sequence[Value]:
        inputs = [scope.env.get(name) for name in node.inputs]
        attributes = _resolved(node.attributes, scope.arguments)
        function = self.file.functions.get((node.domain, node.op, node.overload))
        if function is not None:
            return self._call(function, inputs, attributes)
        op = OPERATORS.get((node.domain, node.op))
        opset = scope.opsets.get(node.domain, 1)
        schema = inference.schema_of(node.op, node.domain, opset)

        def run(graph: Graph, given: Sequence[Value]) -> list[Value]:
            own = dict(zip(graph.inputs, given, strict=True))
            env = {**scope.env, **graph.initializers, **own}
            return self._nodes(graph, replace(scope, env=env))

        defaults = inference.defaults_of(node.op, node.domain, opset)
        given = {**(op.defaults if op else {}), **defaults, **attributes}
        version = schema.since_version if schema else opset
        call = Call(node, version, given, run, self.note)
        try:
            inference.require_sound(call, schema, opset, inputs, attributes)
            name = node.where.strip("/").replace("(", "_").replace(")", "_")
            own = {ROUNDED: node.op} if TFLITE in (node.domain, node.overload) else {}
            with jax.named_scope(name or node.op), said(**own):
                if op is not None:
                    return apply(op, call, inputs)
                inner = inference.definition(node, opset, inputs, attributes, self.file.path)
                if inner is None:
                    what = "the standard does not define it for these inputs and attributes"
                    raise call.refuse(what)
                return self._call(inner, inputs, call.attributes)
        except (JqError, MemoryError):
            raise
        except Exception as error:  # of any kind: a call that the operator was not written for
            reason = str(error).partition("\n")[0]
            text = f"{type(error).__name__}: {reason} (of {call.shapes(inputs)})"
            raise call.refuse(text, location=str(self.file.path)) from error

    def _call(
        self, function: Function, inputs: Sequence[Value], attributes: Mapping[str, Any]
    ) -> list[Value]:
        names = function.graph.inputs
        given = [*inputs, *[None] * (len(names) - len(inputs))]
        env = dict(zip(names, given, strict=True))
        opsets = function.opsets or self.file.opsets
        return self._nodes(function.graph, Scope(env, opsets, {**function.defaults, **attributes}))


def apply(op: Operator, call: Call, inputs: Sequence[Value]) -> Sequence[Value]:
    """Results of one operator, folded when all that it reads is known."""
    args, keywords = bind(op, call, inputs)
    require_shapes(op, call, args)
    for i, operand in enumerate(op.operands[: len(args)]):
        if operand.known and args[i] is not None:
            data = known(args[i])
            if data is None:
                raise call.refuse(
                    f"its input {operand.name!r} depends on the model's inputs",
                    "fix the input that it comes from with --value NAME=V, in Python values={...}",
                )
            args[i] = data
    if op.fold and all(a is None or isinstance(a, np.ndarray) for a in args):
        with jax.ensure_compile_time_eval():
            results = _tuple(op.function(*args, **keywords))
        return [_folded(r) for r in results]
    if op.codes:
        return _tuple(op.function(*args, **keywords))
    args = [traced(a) for a in args]
    codes = {a.dtype for a in args if isinstance(a, Codes)}
    if op.moves and len(codes) == 1:
        return _moved(op, args, keywords, codes.pop())
    return _tuple(op.function(*map(plain, args), **keywords))


def _moved(
    op: Operator, args: Sequence[Value], keywords: Mapping[str, Any], dtype: np.dtype[Any]
) -> list[Value]:
    """An operator that only moves elements, on the codes of what it moves."""

    def codes(x: Value) -> Any:
        mine = x is not None and not isinstance(x, list) and np.dtype(x.dtype) == dtype
        return to_signed(x) if mine else plain(x)

    results = _tuple(op.function(*map(codes, args), **keywords))
    kind = signed_type(dtype)
    return [Codes(r, dtype) if r is not None and r.dtype == kind else r for r in results]


def _folded(x: Value) -> Value:
    if x is None or isinstance(x, np.ndarray | list | Codes):
        return x
    return x if isinstance(x, jax.core.Tracer) or x.size > _FOLD else np.asarray(x)


def _tuple(results: Any) -> Sequence[Value]:
    return results if isinstance(results, tuple) else (results,)


def _resolved(attributes: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """References to a function's attributes replaced by what its call gives."""
    found = {}
    for key, value in attributes.items():
        if isinstance(value, Reference):
            value = arguments.get(value.name)
        if value is not None:
            found[key] = value
    return found


def require_operators(file: File) -> None:
    """Names all missing operators at once, with counts, versions and the first node."""
    missing: dict[tuple[str, str, int], list[Node]] = {}
    for key, node in _missing(file):
        missing.setdefault(key, []).append(node)
    if not missing:
        return
    rows = [
        f"{domain or 'ai.onnx'}.{name} (opset {opset}, {len(nodes)} nodes, "
        f"first {nodes[0].where!r}{_COUNTED.get((domain, name), '')})"
        for (domain, name, opset), nodes in sorted(missing.items())
    ]
    hint = "rewrite these parts of the model, or export it with other operators"
    if any(domain in _LAYOUTS for domain, _, _ in missing):
        hint = "ONNX Runtime laid it out for one machine: save it with ORT_ENABLE_EXTENDED at most"
    elif all((domain, name) in _COUNTED for domain, name, _ in missing):
        names = next(nodes[0].inputs for nodes in missing.values())
        hint = f"end the model at its inputs ({', '.join(filter(None, names[:2]))}) with"
        hint += " onnx.utils.extract_model, and compute the rest after it"
    elif any(not domain and opset < _OLDEST for domain, _, opset in missing):
        hint = f"bring the model to operators of version {_OLDEST} or newer, with"
        hint += " onnx.version_converter.convert_version"
    what = f"{len(missing)} operators are not supported: {'; '.join(rows)}"
    raise UserError(what, location=str(file.path), hint=hint)


def _missing(file: File) -> Iterator[tuple[tuple[str, str, int], Node]]:
    graphs = [(file.graph, file.opsets)]
    graphs += [(f.graph, f.opsets) for f in file.functions.values()]
    for graph, opsets in graphs:
        for node in graph.walk():
            known_here = (node.domain, node.op) in OPERATORS
            own = (node.domain, node.op, node.overload) in file.functions
            opset = opsets.get(node.domain, 1)
            missing = not known_here and not inference.has_definition(node, opset)
            if not own and (missing or _before_oldest(node, opset)):
                yield (node.domain, node.op, opset), node


def _before_oldest(node: Node, opset: int) -> bool:
    """True if an operator of the standard changed since (`Add` aligned axes by an attribute)."""
    if node.domain or opset >= _OLDEST:
        return False
    then, since = (inference.schema_of(node.op, "", version) for version in (opset, _OLDEST))
    return then is None or since is None or then.since_version != since.since_version
