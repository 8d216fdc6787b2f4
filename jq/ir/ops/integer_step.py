"""The marker of one step of an integer program: from codes to codes, with what it computes as data.

    %q = stablehlo.composite "jq.integer" %a, %w, %bias, %mantissa {composite_attributes = {
        kind = "contraction", op = "stablehlo.convolution", scale = ..., mantissa = ..., ...}}

Its decomposition is the integer arithmetic. What a device's own format needs to know (scales, zero
points, bias, mantissas, windows, tables) are its attributes: no writer reads arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from jq.formats.integer_functions import Output
from jq.ir import Op, ir, maker
from jq.ir.arrays import StableHloOps
from jq.ir.build import attributes_of, copied, plain
from jq.ir.markers import composite, marker_kind
from jq.ir.program import Program

INTEGER = "jq.integer"
STEP = "jq.step"  # the kind of a step, at what it resulted in
Kind = Literal[
    "contraction",  # sum of products, bias, rescale
    "rescale",  # codes in another scale
    "add",
    "subtract",
    "multiply",
    "sum",  # along axes, or of windows
    "table",  # a function of single codes
    "table_of_several",  # of codes of two tensors, or of a code and its place
    "softmax",
    "normalization",
    "quotient",
]


@dataclass(frozen=True)
class Operand:
    """Codes that a step reads: `real = scale * (codes - zero_point)`; both arrays broadcast over
    the codes (float32 and int32, size 1 along the axes on which they do not depend)."""

    codes: ir.Value
    scale: np.ndarray
    zero_point: np.ndarray


@dataclass(frozen=True)
class IntegerStep:
    """A `jq.integer`.

    Attributes:
        name: of the layer, in the user's terms.
        op: the float op in its middle (`stablehlo.convolution`), with its `attributes`.
        numbers: by kind. All that rescale: `factor` (float64, steps of the result a unit of the
            sum), `mantissa` and `exponent` of it, `bias` (int64, in units of the sum), each compact
            in the shape of the result. `bits`: the fractional bits that a sum of two keeps.
            `table`: the code of every code."""

    kind: Kind
    name: str
    operands: tuple[Operand, ...]
    out: Output
    op: str = ""
    attributes: Mapping[str, ir.Attribute] = field(default_factory=dict)
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)

    def of_op(self, op: Op) -> "IntegerStep":
        """The same as the form of an op of the program."""
        return replace(self, op=op.operation.name, attributes=attributes_of(op))

    def knowing(self, **numbers: Any) -> "IntegerStep":
        """The same with further numbers."""
        arrays = {key: np.asarray(value) for key, value in numbers.items()}
        return replace(self, numbers={**self.numbers, **arrays})

    def giving(self, out: Output) -> "IntegerStep":
        """The same with a result."""
        return replace(self, out=out)


def integer_step(program: Program, codes: ir.Value, step: IntegerStep) -> ir.Value:
    """`codes`, which were computed of the step's operands just now, as the result of a marker with
    that computation as its decomposition. The ops in between stay, unread."""
    operands = [o.codes for o in step.operands]
    ops, others = _between(codes, operands)
    read = [*dict.fromkeys(operands), *others]

    def body(_: StableHloOps, args: Sequence[ir.Value]) -> list[ir.Value]:
        known = dict(zip(read, args, strict=True))
        for op in ops:
            copy = copied(op, [known[v] for v in op.operands])
            known |= dict(zip(op.results, copy.results, strict=True))
        return [known[codes]]

    out = step.out
    ends = out.zero_point, out.low, out.high
    wide = out.dtype != Output(out.scale, *ends).dtype  # which the ends do not say
    attributes = {
        "kind": step.kind,
        "name": step.name,
        "op": step.op,
        "operands": [
            {"at": np.array(read.index(o.codes)), "scale": o.scale, "zero_point": o.zero_point}
            for o in step.operands
        ],
        "scale": out.scale,
        "codes": (*ends, 1) if wide else ends,
        "attributes": step.attributes,
        "numbers": step.numbers,
    }
    return composite(program, INTEGER, None, attributes, read, body)[0]


def _between(value: ir.Value, ends: Sequence[ir.Value]) -> tuple[list[Any], list[ir.Value]]:
    """The ops that compute a value from `ends`, in an order, and the arguments that they read."""
    ops: dict[Any, None] = {}
    arguments: dict[ir.Value, None] = {}
    todo: list[tuple[ir.Value, bool]] = [(value, False)]
    while todo:
        v, done = todo.pop()
        op = maker(v)
        if v in ends or (op is not None and op in ops):
            continue
        if op is None:
            arguments[v] = None
        elif done:
            ops[op] = None
        else:
            todo.append((v, True))
            todo += [(read, False) for read in op.operands]
    return list(ops), list(arguments)


def match_integer(op: Op) -> IntegerStep | None:
    """The step that an op is, or None for any other op."""
    if marker_kind(op) != INTEGER:
        return None
    attrs = ir.DictAttr(op.attributes["composite_attributes"])
    said = {a.name: plain(a.attr) for a in attrs if a.name != "attributes"}
    return IntegerStep(
        said["kind"],
        said["name"],
        tuple(
            Operand(op.operands[int(o["at"])], o["scale"], o["zero_point"])
            for o in said["operands"]
        ),
        Output(said["scale"], *said["codes"]),
        said["op"],
        {a.name: a.attr for a in attrs["attributes"]},
        said["numbers"],
    )
