"""Operators: one small function each, found by being defined.

    @operator("Gather")
    def gather(data: Array, indices: Array, *, axis: int) -> Array: ...

    operators({"SequenceLength": lambda sequence: np.asarray(len(sequence), np.int64)})

Positional parameters are the node's inputs; where an older version of the operator has an attribute
of that name instead, the attribute is passed. One annotated `Known` has to be a NumPy array when
the model is traced: a shape, axes. Keyword parameters are attributes, with the defaults of onnx's
own schemas; `node` is the `Call` itself, with its version. The result is one array or a tuple.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any

import numpy as np
import onnx
from onnx import defs

from jq.base.errors import InternalError, UserError
from jq.frontends.onnx.graph import STANDARD, Node

Array = Any  # a NumPy array that is known while tracing, or a JAX array
Known = Annotated[Any, "a NumPy array, or None where it is optional"]
MICROSOFT = "com.microsoft"

OPERATORS: dict[tuple[str, str], Operator] = {}


@dataclass(frozen=True)
class Call:
    """A node as its operator sees it.

    Attributes:
        version: of the operator: the opset that introduced the definition in force.
        run: computes a sub-graph: `run(graph, inputs) -> outputs`.
        note: tells the user something about the import.
    """

    node: Node
    version: int
    attributes: Mapping[str, Any]
    run: Callable[..., list[Any]]
    note: Callable[[str], None]

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


class Attributes:
    """Attributes that several operators have: a frozen dataclass below this one. An operator takes
    them together, as one keyword of that type."""


@dataclass(frozen=True)
class Operator:
    """A function with what its signature says.

    Attributes:
        positional: name of each input, and whether it has to be known.
        variadic: whether further inputs are taken.
        keywords: attributes that it takes.
        groups: keywords that take several, and their types.
        moves: its results are elements of its inputs, in the order of their values: quantized
            tensors pass through as the codes that they are.
            fold: computed at once when all inputs are known.
        codes: it takes values of any kind as they are (see `jq.frontends.onnx.values`).
    """

    function: Callable[..., Any]
    positional: tuple[tuple[str, bool], ...]
    required: int
    variadic: bool
    keywords: tuple[str, ...]
    groups: tuple[tuple[str, type[Any]], ...]
    moves: bool
    fold: bool
    codes: bool


def operator(
    *names: str,
    domain: str = "",
    moves: bool = False,
    fold: bool = True,
    codes: bool = False,
    known: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function for operators of these names; `codes`: it takes `Codes` as they are;
    `known`: parameters that are `Known`, of a lambda."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if (domain, name) in OPERATORS:
                raise InternalError(f"operator {name} is defined twice")
            OPERATORS[domain, name] = _described(function, known.split(), moves, fold, codes)
        return function

    return register


def operators(functions: Mapping[str, Callable[..., Any]], **options: Any) -> None:
    """Registers operators that are one expression each, by name; options as of `operator`."""
    for name, function in functions.items():
        operator(name, **options)(function)


def _described(
    function: Callable[..., Any], known: Sequence[str], moves: bool, fold: bool, codes: bool
) -> Operator:
    parameters = inspect.signature(function).parameters.values()
    kinds = inspect.Parameter
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords = [p for p in parameters if p.kind is kinds.KEYWORD_ONLY]
    groups = [p for p in keywords if isinstance(p.annotation, type)]
    groups = [p for p in groups if issubclass(p.annotation, Attributes)]
    return Operator(
        function,
        tuple((p.name, p.name in known or p.annotation is Known) for p in positional),
        sum(p.default is p.empty for p in positional),
        any(p.kind is kinds.VAR_POSITIONAL for p in parameters),
        tuple(p.name for p in keywords if p not in groups),
        tuple((p.name, p.annotation) for p in groups),
        moves,
        fold,
        codes,
    )


@cache
def schema_of(name: str, domain: str, opset: int) -> Any:
    """The schema that onnx has of an operator in force at `opset`; None where it has none."""
    try:
        return defs.get_schema(name, opset, "" if domain == "ai.onnx" else domain)
    except defs.SchemaError:
        return None


@cache
def defined_by(name: str, domain: str, opset: int) -> Any:
    """The schema whose body says what an operator is: the one in force, or the first later one that
    has a body, where that takes the same inputs, and the same attributes with the same defaults
    (`LeakyRelu` has been what it is since version 6, and has a body since 16); None without."""
    schema = schema_of(name, domain, opset)
    newest = defs.onnx_opset_version() if domain in STANDARD else opset
    for version in range(opset, newest + 1) if schema is not None else ():
        later = schema_of(name, domain, version)
        if later.has_function or later.has_context_dependent_function:
            mine, its = (defaults_of(name, domain, v) for v in (opset, version))
            same = len(later.inputs) == len(schema.inputs) and mine.items() <= its.items()
            return later if same and schema.attributes.keys() <= later.attributes.keys() else None
    return None


@cache
def defaults_of(name: str, domain: str, opset: int) -> Mapping[str, Any]:
    schema = schema_of(name, domain, opset)
    if schema is None:
        return {}
    found = {}
    for key, attribute in schema.attributes.items():
        if attribute.default_value.name:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            found[key] = _text(value)
    return found


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_text(v) for v in value] if isinstance(value, list) else value


def bind(operator: Operator, call: Call, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the operator's function."""
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    if len(given) > len(operator.positional) and not operator.variadic:
        raise call.refuse(f"{len(given)} inputs, at most {len(operator.positional)} are known")
    rest = 0 if operator.variadic else len(operator.positional) - len(given)
    args = given + [None] * rest
    for i, (name, _) in enumerate(operator.positional[: len(args)]):
        if args[i] is None and call.attributes.get(name) is not None:
            args[i] = np.asarray(call.attributes[name])
        if args[i] is None and i < operator.required:
            raise call.refuse(f"its input {name!r} is missing")
    keywords: dict[str, Any] = {}
    for key, kind in operator.groups:
        names = {f.name for f in fields(kind)} & call.attributes.keys()
        keywords[key] = kind(**{name: call.attributes[name] for name in names})
    for key in operator.keywords:
        if key == "node":
            keywords[key] = call
        elif key in call.attributes:
            keywords[key] = call.attributes[key]
    return args, keywords
