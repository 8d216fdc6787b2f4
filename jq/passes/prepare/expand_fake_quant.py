"""Fake quantization becomes quantize and dequantize, with the parameters that it carries.

    dot_general (jq.fake_quant %x, %low, %high), (jq.fake_quant %w)
    ->
    dot_general (jq.dequantize (jq.quantize %x, %scale)), (jq.dequantize %codes, %scale)

What is computed from weights alone is stored as its codes, in `scan`, where a layer's slice is
quantized, too. After another quantization with the same parameters nothing is left to do."""

from dataclasses import replace
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding, affine_format, get_format, is_affine, unpacked
from jq.ir import NAME, OPS, Program, at, dtype_of, evaluate, ir, like, maker, shape_of, string_attr
from jq.ir.build import replace as replace_op
from jq.ir.encodings import FakeQuant, match_fake_quant, store
from jq.ir.markers import DEQUANTIZE, QUANTIZE, dequantize, match, quantize, quantize_dynamic
from jq.passes.base import Pass, PassContext
from jq.passes.prepare.fold_weights import Constant, evaluate_all


class ExpandFakeQuant(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        fakes = [f for op in program.walk() if (f := match_fake_quant(op))]
        _store_weights(program, fakes)
        for op in list(program.walk()):
            fake = match_fake_quant(op)
            if fake:
                with at(op):
                    value = _activation(program, fake)
                replace_op(op, [value])
        return program.tidied(bool(fakes))


# Weights


def _store_weights(program: Program, found: list[FakeQuant]) -> None:
    """Codes instead of every fake-quantized value that is computed from weights alone.

    One may read what another gives, so all are encoded before the first is replaced."""
    constant = Constant(program)
    pending: list[tuple[FakeQuant, list[Any], ir.Value, str]] = []
    for fake in found:
        moves, source = _slices(fake.x)
        names = constant.weights(source)
        if names and (fake.low is None or (not moves and _given(program, fake))):
            pending.append((fake, moves, source, min(names)))
    arrays = evaluate_all(program, [source for _, _, source, _ in pending])
    encoded: list[tuple[Encoding, dict[str, np.ndarray]]] = []
    for fake, moves, source, _ in pending:
        array, enc = arrays[source], fake.encoding
        if moves:
            enc = enc.with_shape(array.shape, (1, *enc.block))
        encoded.append((enc, _encode(array, enc, _given(program, fake))))
    ops, passed_over = {fake.op.operation for fake, *_ in pending}, []
    for (fake, moves, _, owner), (enc, parts) in zip(pending, encoded, strict=True):
        if ops.issuperset(use.owner.operation for use in fake.op.results[0].uses):
            passed_over.append(fake.op.operation)  # what reads it is stored
            continue
        value = store(program, owner, enc, parts, dtype_of(fake.op.results[0]))
        with at(fake.op):
            for op in reversed(moves):
                result = op.results[0]
                operands = [value, *list(op.operands)[1:]]
                value = like(op, operands, shape_of(result), dtype_of(result))
        replace_op(fake.op, [value])
    for op in reversed(passed_over):
        op.erase()


def _slices(value: ir.Value) -> tuple[list[Any], ir.Value]:
    """The reads of one layer in front of a value, last first, and the stack that they read."""
    reshape = maker(value, "stablehlo.reshape")
    cut = maker(reshape.operands[0], "stablehlo.dynamic_slice") if reshape else None
    if reshape is None or cut is None:
        return [], value
    source, layer = cut.operands[0], shape_of(value)
    if shape_of(source)[1:] != layer or shape_of(cut.results[0]) != (1, *layer):
        return [], value
    return [reshape, cut], source


def _encode(
    x: np.ndarray, enc: Encoding, given: tuple[np.ndarray, np.ndarray] | None
) -> dict[str, np.ndarray]:
    """Parts of a weight as `fake_quantize` computes them, own range or given."""
    if not is_affine(enc.format) or (given is None and enc.scale_type != "float32"):
        return get_format(enc.format).encode(x, enc)
    fmt = affine_format(enc.format)
    if given is None:
        coded = fmt.quantize_dynamic(NUMPY, np.asarray(x, np.float32), unpacked(enc))
    else:
        scale, zero = fmt.parameters(*given, enc)
        coded = {"codes": fmt.quantize(x, scale, zero, unpacked(enc)), "scale": scale}
        coded |= {} if zero is None else {"zero_point": zero}
    parts = {"codes": fmt.pack(coded["codes"], enc), "scale": np.asarray(coded["scale"])}
    if "zero_point" in coded:
        parts["zero_point"] = fmt.pack(coded["zero_point"], enc)
    return parts


# Activations


def _activation(program: Program, fake: FakeQuant) -> ir.Value:
    enc, name = unpacked(fake.encoding), string_attr(fake.op, NAME) or ""
    dtype = dtype_of(fake.x)
    if fake.low is None:
        marker = match(fake.x, DEQUANTIZE)
        if get_format(enc.format).idempotent and marker and marker.encoding == enc:
            return fake.x
        parts = quantize_dynamic(program, fake.x, enc, tensor=name)
        return dequantize(program, enc, parts, dtype, tensor=name)
    fmt, given = affine_format(enc.format), _given(program, fake)
    if given is None:  # a range that the program computes
        scale, zero = fmt.parameters_of(OPS, fake.low, fake.high, enc)
    else:
        arrays = fmt.parameters(*given, enc)
        if _already(program, fake.x, enc, arrays):
            return fake.x
        scale, zero = (None if a is None else OPS.constant(a) for a in arrays)
    values = {"scale": scale} | ({} if zero is None else {"zero_point": zero})
    parts = quantize(program, fake.x, enc, values, tensor=name)
    return dequantize(program, enc, parts, dtype, tensor=name)


def _given(program: Program, fake: FakeQuant) -> tuple[np.ndarray, np.ndarray] | None:
    """The range where it is known now."""
    if fake.low is None or fake.high is None:
        return None
    low, high = evaluate(program, fake.low), evaluate(program, fake.high)
    return None if low is None or high is None else (low, high)


def _already(
    program: Program, x: ir.Value, enc: Encoding, wanted: tuple[np.ndarray, np.ndarray | None]
) -> bool:
    """True if `x` holds numbers of just these parameters, which quantizing leaves as they are."""
    outer = match(x, DEQUANTIZE)
    inner = outer and match(outer.parts["codes"], QUANTIZE)
    if not outer or not inner or replace(outer.encoding, shape=enc.shape) != enc:
        return False
    for key, array in zip(("scale", "zero_point"), wanted, strict=True):
        own = evaluate(program, inner.parts[key]) if key in inner.parts else None
        if array is not None and (own is None or not np.array_equal(own, array)):
            return False
    return True
