"""Ops that move or select elements do so on codes, with the same scale and zero point.

    broadcast_in_dim (dequantize %q, %s, %z)  ->  dequantize (broadcast_in_dim %q), %s, %z
    reduce_window maximum (dequantize %q)     ->  dequantize (reduce_window maximum %q)

For one scale and zero point a tensor. Padding is with the code of the padding value; the
neutral element of a maximum is the smallest code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats import get_format
from jq.formats.affine import Affine
from jq.ir import Program, at, dtype_of, ir, shape_of, tensor_type
from jq.ir.arrays import StableHloOps
from jq.ir.build import attributes_of, replace
from jq.ir.cone import functions, kind_of
from jq.ir.markers import DEQUANTIZE, Marker, dequantize, match
from jq.passes._integer_ops import MOVES, as_softmax, reduction, splat_of
from jq.passes._integer_values import Leaf, leaf_of
from jq.passes.base import Pass, PassContext
from jq.passes.sink_dequantize import erase_dead

OPS = StableHloOps()


@dataclass(frozen=True)
class MoveCodes(Pass):
    name = "move-codes"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in list(program.body.operations):
            if kind_of(op) not in MOVES and not _is_maximum(program, op):
                continue
            marker = match(op.operation.operands[0], DEQUANTIZE)
            leaf = leaf_of(program, op.operation.operands[0])
            if marker is None or leaf is None:
                continue
            with at(op):
                value = _moved(program, op, marker, leaf)
            if value is not None:
                replace(op, [value])
                changed = True
        erase_dead(program)
        return changed


def _is_maximum(program: Program, op: Any) -> bool:
    """A largest element, unless it is the first step of a softmax."""
    if reduction(program, op) != "maximum":
        return False
    return not any(as_softmax(cut) for cut in functions(program, op.operation.operands[0], op))


def _moved(program: Program, op: Any, marker: Marker, leaf: Leaf) -> ir.Value | None:
    others = list(op.operation.operands)[1:]
    kind, shape = kind_of(op), shape_of(op.operation.results[0])
    if kind == "stablehlo.pad":
        filling = splat_of(program, others[0])
        if filling is None:
            return None
        fmt = get_format(marker.encoding.format)
        assert isinstance(fmt, Affine)
        low, high = fmt.limits(marker.encoding)
        code = np.clip(np.rint(filling / leaf.scale) + leaf.zero_point, low, high)
        others = [OPS.constant(code.astype(np.int8))]
    if kind in ("stablehlo.reduce", "stablehlo.reduce_window"):
        codes = reduce_like(op, leaf.codes, "maximum", np.iinfo(np.int8).min)
    else:
        codes = ir.Operation.create(
            kind,
            results=[tensor_type(shape, dtype_of(leaf.codes))],
            operands=[leaf.codes, *others],
            attributes=attributes_of(op),
        ).result
    block = (0,) * len(shape)
    enc = marker.encoding.with_shape(shape, block)
    parts = {"codes": codes} | {
        k: OPS.reshape(v, enc.grid) for k, v in marker.parts.items() if k != "codes"
    }
    return dequantize(program, enc, parts, dtype_of(op.operation.results[0]), tensor=marker.tensor)


def reduce_like(op: Any, x: ir.Value, combine: str, start: int) -> ir.Value:
    """The reduce or reduce_window `op` on integers `x`, combined by the op `combine`."""
    dtype = dtype_of(x)
    scalar = tensor_type((), dtype)
    new = ir.Operation.create(
        op.operation.name,
        results=[tensor_type(shape_of(op.operation.results[0]), dtype)],
        operands=[x, OPS.constant(np.array(start, dtype))],
        attributes=attributes_of(op),
        regions=1,
    )
    block = new.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        inner = ir.Operation.create(
            f"stablehlo.{combine}", results=[scalar], operands=list(block.arguments)
        )
        ir.Operation.create("stablehlo.return", operands=[inner.result])
    return new.result
