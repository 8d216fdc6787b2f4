"""A product of codes that the model multiplies itself becomes one of what they stand for.

    convert (dot_general %a, %b : i8 x i8 -> i32) : f32
    ->
    dot_general (jq.dequantize %a, 1.0), (jq.dequantize %b, 1.0) : f32

with scales of 1, so that it is planned, explained and computed by kernels as any other: in
integers, whatever the pipeline, since both operands are given. The float of an int32 sum is what
the program then has as well. Only where nobody reads the sum as integers and it cannot overflow.
Operands that are 8-bit floats become those of the result's type, which holds them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.formats import Encoding
from jq.formats.affine_storage import FULL
from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import constant, like
from jq.ir.constants import evaluate
from jq.ir.markers import dequantize
from jq.ir.stored import store
from jq.ir.values import maker
from jq.ops.base import Contraction
from jq.passes.base import Pass, PassContext
from jq.passes.prepare._arriving import as_stored
from jq.planning import contractions, op_name

OPS = StableHloOps()
F32 = np.dtype(np.float32)
LARGEST = 2**31 // 2**14  # products of two codes that an int32 holds the sum of


@dataclass(frozen=True)
class RecognizeProducts(Pass):
    name = "recognize-products"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op, rule in list(contractions(program)):
            if len(rule.roles(op)) < 2:
                continue
            codes = [_codes(v) for v in op.operation.operands]
            known = [v for v in codes if v is not None]
            if len(known) == 2 and _floats_read(op, rule):
                _replace(program, op, known)
                changed = True
            else:
                changed |= _widen(op)
        if changed:
            program.drop_dead()
            program.drop_unused_weights()
        return changed


def _widen(op: Op) -> bool:
    """Operands of 8 bits and less in the float type of the result."""
    wide = dtype_of(op.operation.results[0])
    kinds = [dtype_of(v) for v in op.operation.operands]
    if wide.kind not in "fV" or not any(k.kind == "V" and k.itemsize == 1 for k in kinds):
        return False
    with at(op):
        for i, value in enumerate(list(op.operation.operands)):
            op.operation.operands[i] = OPS.convert(value, wide)
    return True


def _codes(value: ir.Value) -> ir.Value | None:
    """The codes behind an operand and its conversions to wider integers."""
    found = None
    while (kind := dtype_of(value)).name.startswith(("int", "uint")):
        if kind.name in ("int2", "int4", "int8", "uint2", "uint4"):
            found = value
        op = maker(value, "stablehlo.convert")
        if op is None:
            break
        value = op.operation.operands[0]
    return found


def _floats_read(op: Op, rule: Contraction) -> bool:
    """Whether the sums are read as floats alone, and are what int32 holds."""
    result = op.operation.results[0]
    readers = [use.owner.operation for use in result.uses]
    return (
        dtype_of(result) == np.int32
        and rule.terms(op) < LARGEST
        and all(
            r.name == "stablehlo.convert" and dtype_of(r.results[0]).kind in "fV" for r in readers
        )
    )


def _replace(program: Program, op: Op, codes: list[ir.Value]) -> None:
    result = op.operation.results[0]
    with at(op):
        operands = [_values(program, v, f"{op_name(op)}:{i}") for i, v in enumerate(codes)]
        product = like(op, operands, shape_of(result), F32)
        for reader in [use.owner.operation for use in result.uses]:
            old = reader.results[0]
            old.replace_all_uses_with(OPS.convert(product, dtype_of(old)))
            reader.erase()
    op.operation.erase()


def _values(program: Program, codes: ir.Value, name: str) -> ir.Value:
    """The numbers that codes are, as a dequantize."""
    if (data := evaluate(program, codes)) is not None:
        made = as_stored(np.ascontiguousarray(data))
        return store(program, program.weight_name(codes) or name, *made, F32)
    codes, block = OPS.convert(codes, np.int8), (0,) * len(shape_of(codes))
    options = (("divisor", FULL), ("packing", "none"))  # every code may occur
    enc = Encoding("int8", shape_of(codes), block, options=options)
    one = constant(np.ones(enc.grid, np.float32))
    return dequantize(program, enc, {"codes": codes, "scale": one}, F32, tensor=name)
