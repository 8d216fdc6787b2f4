"""Stored weights as StableHLO's own quantized types, for other readers of the module.

    %w = composite "jq.dequantize" %codes, %scale
    ->
    %q = bitcast_convert %codes : tensor<64x33x!quant.uniform<i8<-127:127>:f32:1, {...}>>
    %w = uniform_dequantize %q

The types hold one scale (and zero point) for the tensor or for each index of one axis. What
they cannot say without loss is refused. Scales are exact: a float32 is a float64, in which the
type keeps it, and MLIR prints all of its digits.
"""

from __future__ import annotations

import numpy as np
from jaxlib.mlir import ir

from jq.errors import UserError
from jq.formats import NUMPY, get_format
from jq.formats.affine import Affine
from jq.ir.arrays import StableHloOps
from jq.ir.build import replace
from jq.ir.constants import evaluate
from jq.ir.context import at
from jq.ir.markers import DEQUANTIZE, Marker, match
from jq.ir.program import Program
from jq.ir.types import dtype_of


def to_quant_types(program: Program) -> None:
    """Rewrites every stored weight in place; `UserError` for one that the types cannot hold."""
    for op in list(program.walk()):
        marker = match(op, DEQUANTIZE)
        if marker is not None and marker.tensor in program.encodings:
            with at(op):
                replace(op, [_typed(program, marker)])


def _typed(program: Program, marker: Marker) -> ir.Value:
    enc, ops = marker.encoding, StableHloOps()
    fmt = get_format(enc.format)
    if not isinstance(fmt, Affine):
        raise _refused(marker, f"{enc.format} is not an affine integer")
    axes = [a for a, n in enumerate(enc.grid) if n > 1]
    if len(axes) > 1 or any(enc.block[a] > 1 for a in axes):
        raise _refused(marker, f"its scales have blocks {enc.block}")
    arrays = {k: evaluate(program, v) for k, v in marker.parts.items() if k != "codes"}
    if any(a is None for a in arrays.values()):
        raise _refused(marker, "its scales are cut from those of a stack at run time")
    scales = np.asarray(fmt.scale(NUMPY, arrays, enc), np.float64).reshape(-1)
    zeros = fmt.zero_point(NUMPY, arrays, enc)
    points = np.zeros(scales.shape, int) if zeros is None else np.asarray(zeros).reshape(-1)
    low, high = fmt.limits(enc)
    numbers = [f"{s!r}:{z}" for s, z in zip(scales.tolist(), points.tolist(), strict=True)]
    rest = f":{axes[0]}, {{{', '.join(numbers)}}}" if axes else f", {numbers[0]}"
    shape = "".join(f"{n}x" for n in enc.shape)
    kind = ir.Type.parse(f"tensor<{shape}!quant.uniform<i{fmt.bits}<{low}:{high}>:f32{rest}>>")
    codes = fmt.codes(ops, marker.parts, enc)
    if fmt.bits < 8:
        narrow = ir.RankedTensorType.get(enc.shape, ir.IntegerType.get_signless(fmt.bits))
        codes = _op("convert", narrow, codes)
    plain = ir.RankedTensorType.get(enc.shape, ir.F32Type.get())
    value = _op("uniform_dequantize", plain, _op("bitcast_convert", kind, codes))
    return ops.convert(value, dtype_of(marker.op.results[0]))


def _op(name: str, kind: ir.Type, value: ir.Value) -> ir.Value:
    return ir.Operation.create(f"stablehlo.{name}", results=[kind], operands=[value]).result


def _refused(marker: Marker, reason: str) -> UserError:
    return UserError(
        f"!quant.uniform cannot hold this weight: {reason}",
        op=marker.tensor,
        hint="use weights.emit=integer",
    )
