"""A dequantize written out by hand becomes the marker that it is.

    multiply (convert (subtract (convert %codes), %zero_point)), %scale
    ->
    jq.dequantize %codes, %scale, %zero_point

Weights in any format of integers or 8-bit floats, in blocks or not, are found first (`_arriving`).
Beyond them it fires for int8 and int16 codes with scales and zero points that are known, one for
the tensor or one for each index of some axes. How the codes were made is the model's own business
and stays as it is, so that nothing changes its value; codes of a weight are stored as that weight.
So are those that a marker of the model itself reads, as imported models have them."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jq.base.errors import UserError
from jq.formats import Encoding, affine_format, is_affine
from jq.ir import OPS, Op, Program, at, dtype_of, evaluate, ir, maker, shape_of
from jq.ir.build import NAME, replace, string_attr
from jq.ir.encodings import store
from jq.ir.markers import DEQUANTIZE, dequantize, match
from jq.passes.base import LOG, Pass, PassContext
from jq.passes.prepare.fold_weights import Constant, evaluate_all
from jq.passes.prepare.stored_weights._arriving import Stored, source_of, store_arriving
from jq.passes.rewrite import erase_dead

CODES = {"int8": "int8", "int16": "int16"}  # NumPy type -> format


class RecognizeDequantize(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed, lost = store_arriving(program)
        for name in lost:
            text = f"{name} comes quantized in a way that no format has"
            if cx.settings.strict_encodings:
                hint = "leave strict_encodings (--strict-encodings) off to take its numbers"
                raise UserError(f"{text}, and would be encoded anew", hint=hint)
            LOG.warning("%s: its numbers are encoded anew, or stay float", text)
            program.tell(text)
        changed |= _store_marked(program)
        for op in list(program.walk()):
            if op.operation.name != "stablehlo.multiply" or dtype_of(op.results[0]) != np.float32:
                continue
            value = _recognized(program, op, lost)
            if value is not None:
                replace(op, [value])
                changed = True
        return program.tidied(changed)


def _store_marked(program: Program) -> bool:
    """Stores the codes of weights that a dequantize marker of the model itself reads.

    The marker may come with an imported model, or be one that an earlier pass placed. A model may
    quantize its weights itself, too: what weights alone make is evaluated here."""
    markers = [marker for op in program.walk() if (marker := match(op, DEQUANTIZE))]
    named = ((m, [program.weight_name(v) or "" for v in m.parts.values()]) for m in markers)
    affine = ((m, names) for m, names in named if is_affine(m.encoding.format))
    open_ones = [m for m, names in affine if any(":" not in name for name in names)]
    known = _known(program, [part for m in open_ones for part in m.parts.values()])
    once = Stored()
    for marker in open_ones:
        data = {key: known[part] for key, part in marker.parts.items() if part in known}
        if len(data) < len(marker.parts):
            continue  # an activation
        # What is stored is packed.
        options = tuple(pair for pair in marker.encoding.options if pair[0] != "packing")
        enc = dataclasses.replace(marker.encoding, options=options)
        fmt = affine_format(enc.format)
        parts = {"codes": fmt.pack(data["codes"], enc), "scale": data["scale"]}
        if "zero_point" in data:
            parts["zero_point"] = fmt.pack(data["zero_point"], enc)
        source = source_of(program, marker.parts["codes"])
        name = source or marker.tensor or "constant"
        dtype = dtype_of(marker.op.results[0])
        replace(marker.op, [once.get(program, name, enc, parts, dtype)])
    erase_dead(program)  # what has quantized them
    return bool(once.known)


def _known(program: Program, values: Sequence[ir.Value]) -> dict[ir.Value, np.ndarray]:
    """The data of those that weights and constants alone make."""
    moved = {value: evaluate(program, value) for value in values}
    constant = Constant(program, stored=True)
    computed = [v for v, data in moved.items() if data is None and constant.weights(v) is not None]
    found = moved | evaluate_all(program, computed)
    return {v: data for v, data in found.items() if data is not None}


def _recognized(program: Program, op: Op, lost: list[str]) -> ir.Value | None:
    """The marker of a product, unless it is only part of what makes a weight that is lost."""
    for steps, factor in (list(op.operands), list(op.operands)[::-1]):
        arriving = _codes(program, steps)
        scale = None if arriving is None else evaluate(program, factor)
        if arriving is None or scale is None or source_of(program, arriving[0]) in lost:
            continue
        codes, zero = arriving
        axes = [a for a in range(scale.ndim) if _varies(scale, a) or _varies(zero, a)]
        block = tuple(int(a in axes) for a in range(scale.ndim))
        scheme = "asymmetric" if zero.any() else "symmetric"
        options = () if zero.any() else (("divisor", "absmax/127.5"),)  # every code may occur
        name = CODES[dtype_of(codes).name]
        enc = Encoding(name, shape_of(codes), block, scheme, options=options)
        return _marker(program, op, enc, codes, _grid(scale, axes), _grid(zero, axes))
    return None


def _marker(
    program: Program, op: Op, enc: Encoding, codes: ir.Value, scale: np.ndarray, zero: np.ndarray
) -> ir.Value:
    parts = {"scale": np.asarray(scale, np.float32)}
    if enc.scheme == "asymmetric":
        parts["zero_point"] = zero.astype(np.int32)
    weight = program.weight_name(codes)
    data = evaluate(program, codes)
    if data is not None:
        if "zero_point" in parts:
            parts["zero_point"] = zero.astype(data.dtype)
        name = weight or string_attr(op, NAME) or "constant"
        return store(program, name, enc, {"codes": data, **parts}, np.dtype(np.float32))
    with at(op):
        values = {"codes": codes} | {k: OPS.constant(v) for k, v in parts.items()}
        name = string_attr(op, NAME) or ""
        return dequantize(program, enc, values, np.dtype(np.float32), tensor=name)


def _codes(program: Program, value: ir.Value) -> tuple[ir.Value, np.ndarray] | None:
    """Codes and their zero points, after conversions and at most one subtraction."""
    zero = np.zeros(shape_of(value), np.int64)
    subtracted = False
    while dtype_of(value).name not in CODES:
        owner = maker(value)
        if owner is None:
            return None
        name, operands = owner.operation.name, owner.operands
        if name == "stablehlo.subtract" and not subtracted:
            offset = evaluate(program, operands[1])
            if offset is None or not np.array_equal(offset, np.rint(offset)):
                return None
            zero, subtracted = offset.astype(np.int64), True
        elif name != "stablehlo.convert" or dtype_of(value).name not in ("float32", "int32"):
            return None
        value = operands[0]
    limits = np.iinfo(dtype_of(value))
    inside = limits.min <= zero.min(initial=0) and zero.max(initial=0) <= limits.max
    return (value, zero) if inside else None


def _varies(x: np.ndarray, axis: int) -> bool:
    return bool((x != np.take(x, [0], axis=axis)).any())


def _grid(x: np.ndarray, axes: list[int]) -> np.ndarray:
    """One number an index of `axes`, the others of size 1."""
    return x[tuple(slice(None) if a in axes else slice(0, 1) for a in range(x.ndim))]
