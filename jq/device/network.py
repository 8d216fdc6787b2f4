"""The integer program as a small neutral network: steps from tensors to tensors, with parameters.

It is read from the markers of the `integer` level (`jq.ir.ops.integer_step`); the writers of other
forms read nothing else. Codes have a scale and a zero point wherever they stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jq.base.errors import InternalError, UserError
from jq.base.registry import unused
from jq.formats import affine_format, is_affine
from jq.formats.integer_functions import Output
from jq.ir import Op, Program, dtype_of, evaluate, ir, kind_of, shape_of
from jq.ir.build import NAME, SCOPE, attributes_of, string_attr
from jq.ir.decisions import rounded_as
from jq.ir.markers import DEQUANTIZE, QUANTIZE, match
from jq.ir.ops.integer_step import IntegerStep, match_integer
from jq.ir.ops.selection import combines, written
from jq.ir.values import reached, users
from jq.passes.integer.verify_integer import words
from jq.passes.prepare.fold_weights import evaluate_all


@dataclass(frozen=True)
class Tensor:
    """A tensor of the network.

    Attributes:
        dtype: `int8`, `int16`, `int32`, ... of codes; `float32` at float ends.
        scale, zero_point: what codes stand for, `scale * (code - zero_point)`; float32 and int32,
            of size 1 along the axes on which they do not depend. None for what is no codes.
        data: the elements of a constant, else None."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: np.ndarray | None = None
    zero_point: np.ndarray | None = None
    data: np.ndarray | None = None

    @property
    def values(self) -> np.ndarray:
        """The elements of what is a constant."""
        if self.data is None:
            raise InternalError(f"{self.name} is no constant")
        return self.data

    @property
    def zero(self) -> int:
        """The zero point, where there is one for the whole tensor."""
        return 0 if self.zero_point is None else int(self.zero_point.reshape(-1)[0])

    @property
    def largest(self) -> int:
        """The largest magnitude that a code has less the zero point."""
        ends = np.iinfo(self.dtype)
        return int(max(ends.max - self.zero, self.zero - ends.min))


@dataclass(frozen=True)
class Node:
    """One step: a `jq.ir.ops.integer_step.Kind`, `quantize` and `dequantize` at float ends, `float`
    for other float ops, or the StableHLO name of what only moves, selects or compares codes.

    Attributes:
        inputs: tensors, constants among them.
        op: the StableHLO op in the middle of a step, with its `attributes`.
        numbers: see `jq.ir.ops.integer_step.IntegerStep`.
        out: parameters of the result of a step; None for moves."""

    kind: str
    name: str
    inputs: tuple[Tensor, ...]
    output: Tensor
    op: str
    attributes: Mapping[str, ir.Attribute]
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)
    out: Output | None = None
    source: Any = None  # the op, for messages


@dataclass(frozen=True)
class Network:
    """Nodes in an order in which they can run.

    Attributes:
        host: inputs that are codes of what the model computes in float of its own inputs, by name;
            each is a result of an op of the program."""

    nodes: tuple[Node, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    host: Mapping[str, Op] = field(default_factory=dict)


# What gives the same whether it moves floats or their codes.
FLOAT_MOVES = ("reshape", "transpose", "slice", "reverse", "broadcast_in_dim")
# What moves, selects or compares codes and has no parameters of its own.
MOVES = (
    *("reshape", "transpose", "broadcast_in_dim", "pad", "slice", "concatenate", "reverse"),
    *("maximum", "minimum", "clamp", "gather", "reduce", "reduce_window", "convert"),
    *("compare", "select", "dynamic_slice", "dynamic_update_slice", "scatter"),
)
CONDITIONS = ("and", "or", "not")  # of truth values
NUMBERS = (  # of indices of int32
    *("add", "subtract", "multiply", "divide", "remainder", "sign", "abs", "negate"),
    *("shift_left", "shift_right_arithmetic"),
)


def network(program: Program) -> Network:
    """The network of an integer program with its markers (`Levels.marked`).

    Raises:
        UserError: an op has no form here, by its name in the model."""
    return _Reader(program).read()


class _Reader:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.tensors: dict[ir.Value, Tensor] = {}
        self.names: set[str] = set()
        self.known: dict[ir.Value, np.ndarray] = {}  # what ops make of no input

    def read(self) -> Network:
        program, nodes, returned = self.program, list[Node](), list[ir.Value]()
        inputs = list(program.body.arguments)[: len(program.inputs)]
        for spec, value in zip(program.inputs, inputs, strict=True):
            self.tensors[value] = Tensor(self._name(spec.name), spec.shape, dtype_of(value).name)
        computed, constants = self._parts(inputs)
        self.known = {v: np.asarray(a) for v, a in evaluate_all(program, constants).items()}
        for op in program.body.operations:
            if op.operation.name == "func.return":
                returned = list(op.operation.operands)
            elif op in computed:
                nodes.append(self._node(op))
        outputs = tuple(self._tensor(v) for v in returned)
        return Network(tuple(nodes), tuple(self.tensors[v] for v in inputs), outputs)

    def _parts(self, inputs: Sequence[ir.Value]) -> tuple[set[Op], list[ir.Value]]:
        """Ops that depend on an input, and values they read that do not, as a resize's matrix."""
        depends, ops, made = set(inputs), set[Op](), dict[ir.Value, None]()
        for op in self.program.body.operations:
            last, operands = op.operation.name == "func.return", list(op.operation.operands)
            if last or any(v in depends for v in operands):
                depends.update(op.operation.results)
                ops.add(op)
                others = (v for v in operands if v not in depends)
                made |= {v: None for v in others if evaluate(self.program, v) is None}
        return ops, list(made)

    def _name(self, wanted: str) -> str:
        """A name that no tensor has yet."""
        name = unused(wanted, self.names.__contains__)
        self.names.add(name)
        return name

    def _made(self, wanted: str, value: ir.Value, *codes: np.ndarray | None) -> Tensor:
        """The tensor that an op computes; scale and zero point of what is codes."""
        made = Tensor(self._name(wanted), shape_of(value), dtype_of(value).name, *codes)
        return self.tensors.setdefault(value, made)

    def _tensor(self, value: ir.Value) -> Tensor:
        """A tensor that was computed, or a constant."""
        if value in self.tensors:
            return self.tensors[value]
        data = self.known[value] if value in self.known else evaluate(self.program, value)
        if data is None:
            raise InternalError("an integer is computed from no input and is no constant")
        name = self.program.weight_name(value) or "constant"
        self.tensors[value] = Tensor(self._name(name), data.shape, data.dtype.name, data=data)
        return self.tensors[value]

    def _node(self, op: Op) -> Node:
        if (step := match_integer(op)) is not None:
            return self._step(op, step)
        if (marker := match(op, QUANTIZE, DEQUANTIZE)) is not None:
            return self._end(op, marker)
        kind, values = kind_of(op).removeprefix("stablehlo."), [*op.operands, *op.results]
        floats = any(dtype_of(v).kind in "fV" for v in values) and kind not in FLOAT_MOVES
        conditions = kind in CONDITIONS and all(dtype_of(v) == np.bool_ for v in values)
        known = kind in MOVES if kind != "scatter" else written(op) == "update"
        known |= kind in NUMBERS and dtype_of(values[-1]) == np.int32
        if not (known or floats or conditions) or len(op.operation.results) != 1:
            what = rounded_as(values[-1]) or f"{words(op)} of {dtype_of(values[0])}"
            hint = "cut the model there"
            raise UserError(f"{what} has no form of its own", op=blamed(op), hint=hint)
        kind = "float" if floats else f"logical_{kind}" if conditions else kind
        if kind in NUMBERS:
            kind = f"integer_{kind}"
        elif kind in ("reduce", "reduce_window"):
            kind = f"{kind}_{combines(op)}"
        inputs = tuple(self._tensor(v) for v in op.operation.operands)
        alike = (t for t in inputs if t.dtype == dtype_of(values[-1]).name)
        scaled = next((t for t in alike if t.scale is not None), inputs[0])
        codes = () if dtype_of(values[-1]) == np.bool_ else (scaled.scale, scaled.zero_point)
        output = self._made(named(op), values[-1], *codes)
        name = blamed(op) if floats else named(op)
        return Node(kind, name, inputs, output, kind_of(op), attributes_of(op), source=op)

    def _step(self, op: Op, step: IntegerStep) -> Node:
        inputs = tuple(
            t if t.dtype == "bool" else replace(t, scale=o.scale, zero_point=o.zero_point)
            for o in step.operands
            for t in [self._tensor(o.codes)]
        )
        codes = np.array([step.out.scale], np.float32), np.array([step.out.zero_point], np.int32)
        output = self._made(f"{step.name} result", op.operation.results[0], *codes)
        given = step.op, step.attributes, step.numbers, step.out
        return Node(step.kind, step.name, inputs, output, *given, op)

    def _end(self, op: Op, marker: Any) -> Node:
        """The node where floats become codes or codes floats."""
        value, kind = op.operation.results[0], marker.kind.removeprefix("jq.")
        parts = {k: evaluate(self.program, v) for k, v in marker.parts.items() if k != "codes"}
        scale = np.asarray(parts["scale"], np.float32)
        zero = np.asarray(parts.get("zero_point", np.zeros(1)), np.int32)
        source = self._tensor(op.operation.operands[0])
        codes = (scale, zero) if kind == "quantize" else ()
        output = self._made(f"{marker.tensor} {kind}d", value, *codes)
        if kind == "dequantize":
            source = replace(source, scale=scale, zero_point=zero)
        out = None
        if codes and is_affine(marker.encoding.format) and scale.size == zero.size == 1:
            ends = affine_format(marker.encoding.format).limits(marker.encoding)
            out = Output(float(scale.reshape(())), int(zero.reshape(())), *ends)
        return Node(kind, marker.tensor, (source,), output, "", {}, out=out, source=op)


def named(op: Op) -> str:
    """The user's name of an op: its own, its scope, or what it is."""
    return string_attr(op, NAME) or string_attr(op, SCOPE) or kind_of(op).removeprefix("stablehlo.")


def blamed(op: Op) -> str:
    """The user's name of an op, or of the first with a name that reads what came of it."""
    for value in reached(op.results, lambda v: [y for u in users(v) for y in u.results], 1000):
        name = string_attr(value.owner, NAME) or string_attr(value.owner, SCOPE)
        if found := name or getattr(match_integer(value.owner), "name", ""):
            return found
    return named(op)
