"""Operators: one small function each, found by being defined.

    @operator("Gather")
    def gather(data: Array, indices: Array, *, axis: int) -> Array: ...

    operators({"SequenceLength": lambda sequence: np.asarray(len(sequence), np.int64)})

Positional parameters are the node's inputs; where an older version of the operator has an attribute
of that name instead, the attribute is passed. One annotated `Known` has to be a NumPy array when
the model is traced: a shape, axes. Keyword parameters are attributes, with the defaults of onnx's
own schemas; `node` is the `Call` itself, with its version. The result is one array or a tuple.

An operator of many inputs lists them, and its attributes, as `takes`, and gets them by name:

    @operator("BiasScale", takes="x[... W] scale[] bias[W]?; alpha=1.0", domain="my.own")
    def bias_scale(o: Given) -> Array: ...    o.x, o.scale, o.bias, o.alpha, o.node

`?` may be absent (None), `!` is `Known`, and in brackets stands the shape (`operand_shapes`)."""

import inspect
import re
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from jq.base.errors import InternalError, UserError
from jq.frontends.onnx.graph import Node

Array = Any  # a NumPy array that is known while tracing, or a JAX array
Known = Annotated[Any, "a NumPy array, or None where it is optional"]
MICROSOFT = "com.microsoft"
TFLITE = "tflite"  # of codes; also the overload of operators that it has no own function for

OPERATORS: "dict[tuple[str, str], Operator]" = {}


@dataclass(frozen=True)
class Call:
    """A node as its operator sees it.

    Attributes:
        version: of the operator: the opset that introduced the definition in force.
        run: computes a sub-graph: `run(graph, inputs) -> outputs`.
        note: tells the user something about the import."""

    node: Node
    version: int
    attributes: Mapping[str, Any]
    run: Callable[..., list[Any]]
    note: Callable[[str], None]

    @property
    def where(self) -> str:
        return self.node.where

    @property
    def results(self) -> int:
        """Number of results that are asked for, unnamed ones in front of a named one included."""
        return len(self.node.outputs)

    def asks_for(self, i: int) -> bool:
        return i < len(self.node.outputs) and bool(self.node.outputs[i])

    def shapes(self, inputs: Sequence[Any]) -> str:
        """Names and shapes of the inputs, for a message."""
        pairs = zip(self.node.inputs, inputs, strict=False)
        return ", ".join(f"{name} {list(x.shape)}" for name, x in pairs if hasattr(x, "shape"))

    def refuse(
        self, reason: str, hint: str | None = None, location: str | None = None
    ) -> UserError:
        return UserError(
            f"{self.node.op}: {reason}", op=self.node.where, hint=hint, location=location
        )


class Given(SimpleNamespace):
    """The inputs and attributes of a call, by the names that `takes` lists; `node` is the call."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @property
    def where(self) -> str:
        return str(self.node.where)

    def but(self, **others: Any) -> "Given":
        """The same with other values."""
        return Given(**(vars(self) | others))


@dataclass(frozen=True)
class Operand:
    """An input: whether it has to be there, and to be known; `shape` is a pattern."""

    name: str
    required: bool = True
    known: bool = False
    shape: str | None = None


@dataclass(frozen=True)
class Operator:
    """A function with what its signature says.

    Attributes:
        variadic: whether further inputs are taken.
        keywords: attributes that it takes, and those of them that it needs.
        defaults: of attributes, where the schema has none.
        moves: its results are elements of its inputs, in the order of their values: quantized
            tensors pass through as the codes that they are.
        fold: computed at once when all inputs are known.
        codes: it takes values of any kind as they are (see `jq.frontends.onnx.values`)."""

    function: Callable[..., Any]
    operands: tuple[Operand, ...]
    variadic: bool
    keywords: tuple[str, ...]
    needed: frozenset[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    moves: bool = False
    fold: bool = True
    codes: bool = False


def operator(
    *names: str, domain: str = "", takes: str = "", known: str = "", **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function for operators of these names.

    Args:
        takes: inputs and attributes of a function of a `Given`.
        known: parameters that are `Known`, of a lambda.
        options: `moves`, `fold` and `codes` of `Operator`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if (domain, name) in OPERATORS:
                raise InternalError(f"operator {name} is defined twice")
            described = _listed(function, takes) if takes else _signed(function, known.split())
            OPERATORS[domain, name] = Operator(**described, **options)
        return function

    return register


microsoft = partial(operator, domain=MICROSOFT)  # those that ONNX Runtime has beside the standard


def operators(functions: Mapping[str, Callable[..., Any]], **options: Any) -> None:
    """Registers operators that are one expression each, by name; options as of `operator`."""
    for name, function in functions.items():
        operator(name, **options)(function)


def _signed(function: Callable[..., Any], known: Sequence[str]) -> dict[str, Any]:
    """An operator as the signature of its function describes it."""
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}
    return {
        "function": function,
        "operands": tuple(
            Operand(p.name, p.default is p.empty, p.name in known or p.annotation is Known)
            for p in positional
        ),
        "variadic": any(p.kind is p.VAR_POSITIONAL for p in parameters),
        "keywords": tuple(keywords),
        "needed": frozenset(name for name, needed in keywords.items() if needed) - {"node"},
    }


_LISTED = re.compile(r"(\w+)(\[[^\]]*\])?([?!]*)(?:=(\S+))?")


def _listed(function: Callable[..., Any], takes: str) -> dict[str, Any]:
    """An operator as `takes` describes it."""
    inputs, attributes = (_LISTED.findall(part) for part in f"{takes};".split(";")[:2])
    names = [name for name, *_ in inputs]
    keywords = [name for name, *_ in attributes]

    def call(*args: Any, **given: Any) -> Any:
        absent = dict.fromkeys(keywords)
        return function(Given(**(absent | dict(zip(names, args, strict=True)) | given)))

    return {
        "function": call,
        "operands": tuple(
            Operand(name, "?" not in marks, "!" in marks, shape[1:-1] if shape else None)
            for name, shape, marks, _ in inputs
        ),
        "variadic": False,
        "keywords": (*keywords, "node"),
        "needed": frozenset(name for name, _, marks, value in attributes if not marks + value),
        "defaults": {name: literal_eval(value) for name, *_, value in attributes if value},
    }


def bind(operator: Operator, call: Call, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the operator's function."""
    given, operands = list(inputs), operator.operands
    while given and given[-1] is None:
        given.pop()
    if len(given) > len(operands) and not operator.variadic:
        raise call.refuse(f"{len(given)} inputs, at most {len(operands)} are known")
    args = given + [None] * (0 if operator.variadic else len(operands) - len(given))
    for i, operand in enumerate(operands[: len(args)]):
        if args[i] is None and call.attributes.get(operand.name) is not None:
            args[i] = np.asarray(call.attributes[operand.name])
        if args[i] is None and operand.required:
            raise call.refuse(f"its input {operand.name!r} is missing")
    if missing := operator.needed - call.attributes.keys():
        raise call.refuse(f"its attribute {min(missing)!r} is missing")
    attributes = {**call.attributes, "node": call}
    return args, {key: attributes[key] for key in operator.keywords if key in attributes}
