"""The marker of one step of an integer program: from codes to codes, with what it computes as data.

    %q = stablehlo.composite "jq.integer" %a, %w, %bias, %mantissa {composite_attributes = {
        kind = "contraction", op = "stablehlo.convolution", scale = ..., mantissa = ..., ...}}

Its decomposition is the integer arithmetic. What a device's own format needs to know (scales, zero
points, bias, mantissas, windows, tables) are its attributes: no writer reads arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from jq.formats.integer_functions import Output
from jq.ir import Op, ir, maker
from jq.ir.arrays import StableHloOps
from jq.ir.build import attributes_of, copied
from jq.ir.markers import composite, marker_kind
from jq.ir.program import Program

INTEGER = "jq.integer"
Kind = Literal[
    "contraction",  # sum of products, bias, rescale
    "rescale",  # codes in another scale
    "add",
    "subtract",
    "multiply",
    "sum",  # along axes, or of windows
    "table",  # a function of single codes
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
            `table`: the code of every code.
    """

    kind: Kind
    name: str
    operands: tuple[Operand, ...]
    out: Output
    op: str = ""
    attributes: Mapping[str, ir.Attribute] = field(default_factory=dict)
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)

    def of_op(self, op: Op) -> IntegerStep:
        """The same as the form of an op of the program."""
        return replace(self, op=op.operation.name, attributes=attributes_of(op))

    def knowing(self, **numbers: Any) -> IntegerStep:
        """The same with further numbers."""
        arrays = {key: np.asarray(value) for key, value in numbers.items()}
        return replace(self, numbers={**self.numbers, **arrays})

    def giving(self, out: Output) -> IntegerStep:
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

    attrs = _attributes(step, [read.index(v) for v in operands])
    return composite(program, INTEGER, str(attrs), attrs, read, body)[0]


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


def _attributes(step: IntegerStep, places: Sequence[int]) -> ir.DictAttr:
    text = ir.StringAttr.get
    operands = [
        ir.DictAttr.get({"at": _dense(np.array(at)), **_arrays(vars(o), "scale", "zero_point")})
        for at, o in zip(places, step.operands, strict=True)
    ]
    out = vars(step.out)
    return ir.DictAttr.get(
        {
            "kind": text(step.kind),
            "name": text(step.name),
            "op": text(step.op),
            "operands": ir.ArrayAttr.get(operands),
            "scale": ir.FloatAttr.get(ir.F64Type.get(), step.out.scale),
            "codes": ir.DenseI64ArrayAttr.get([out[k] for k in ("zero_point", "low", "high")]),
            "attributes": ir.DictAttr.get(dict(step.attributes)),
            "numbers": ir.DictAttr.get(_arrays(step.numbers, *step.numbers)),
        }
    )


def _arrays(values: Mapping[str, Any], *keys: str) -> dict[str, ir.Attribute]:
    return {key: _dense(np.asarray(values[key])) for key in keys}


def _dense(array: np.ndarray) -> ir.Attribute:
    return ir.DenseElementsAttr.get(np.array(array, order="C"))


def _array(attr: ir.Attribute) -> np.ndarray:
    return np.array(ir.DenseElementsAttr(attr))


def match_integer(op: Op) -> IntegerStep | None:
    """The step that an op is, or None for any other op."""
    if marker_kind(op) != INTEGER:
        return None
    attrs = ir.DictAttr(op.attributes["composite_attributes"])
    operands = []
    for attr in ir.ArrayAttr(attrs["operands"]):
        given = ir.DictAttr(attr)
        codes = op.operands[int(_array(given["at"]))]
        operands.append(Operand(codes, _array(given["scale"]), _array(given["zero_point"])))
    kind, name, kernel = (ir.StringAttr(attrs[k]).value for k in ("kind", "name", "op"))
    scale, whole = ir.FloatAttr(attrs["scale"]).value, list(ir.DenseI64ArrayAttr(attrs["codes"]))
    return IntegerStep(
        kind,
        name,
        tuple(operands),
        Output(scale, *whole),
        kernel,
        {a.name: a.attr for a in ir.DictAttr(attrs["attributes"])},
        {a.name: _array(a.attr) for a in ir.DictAttr(attrs["numbers"])},
    )
