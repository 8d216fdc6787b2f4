"""A product of codes that the model multiplies itself becomes one of what they stand for.

    convert (dot_general %a, %b : i8 x i8 -> i32) : f32
    ->
    dot_general (jq.dequantize %a, 1.0), (jq.dequantize %b, 1.0) : f32

with scales of 1, so that it is planned, explained and computed by kernels as any other: in
integers, whatever the pipeline, since both operands are given. The float of an int32 sum is what
the program then has as well, where the sum cannot overflow. What reads it as integers (a bias that
is added, a correction for zero points) gets the float converted back: where float32 holds all sums,
and not where every float becomes codes (`placement=early`).
A product with one number everywhere is a sum, and left alone. Operands that are 8-bit floats become
those of the result's type, which holds them all."""

import math

import numpy as np

from jq.formats import Encoding
from jq.formats.affine_math import FULL
from jq.ir import OPS, Op, Program, at, dtype_of, evaluate, ir, is_read, like, maker, shape_of
from jq.ir.encodings import store
from jq.ir.markers import dequantize
from jq.ir.ops.base import Contraction
from jq.passes.base import Pass, PassContext
from jq.passes.prepare.fold_weights import Constant, evaluate_all
from jq.passes.prepare.stored_weights._arriving import pays, source_of
from jq.passes.prepare.stored_weights._kept_codes import as_stored
from jq.passes.prepare.stored_weights._whole_ops import is_looked_up
from jq.planning.operands import contractions, op_name

F32 = np.dtype(np.float32)
EXACT = 2**24  # up to it float32 has all integers


class RecognizeProducts(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed, products = False, list[tuple[Op, Contraction, list[ir.Value]]]()
        for op, rule in list(contractions(program)):
            if len(rule.roles(op)) < 2:
                continue
            codes = [_codes(v) for v in op.operands]
            known = [v for v in codes if v is not None]
            if len(known) == 2 and dtype_of(op.results[0]) == np.int32:
                products.append((op, rule, known))
            else:
                changed |= _widen(op)
        data = _constants(program, [v for *_, known in products for v in known])
        for op, rule, known in products:
            sums = any(v in data and (data[v] == data[v].flat[:1]).all() for v in known)
            if not sums and _fits(op, rule.terms(op), known, data, cx.settings.placement):
                _replace(program, op, known, data)
                changed = True
        return program.tidied(changed)


def _widen(op: Op) -> bool:
    """Operands of 8 bits and less in the float type of the result."""
    wide = dtype_of(op.results[0])
    kinds = [dtype_of(v) for v in op.operands]
    if wide.kind not in "fV" or not any(k.kind == "V" and k.itemsize == 1 for k in kinds):
        return False
    with at(op):
        for i, value in enumerate(list(op.operands)):
            op.operands[i] = OPS.convert(value, wide)
    return True


def _codes(value: ir.Value) -> ir.Value | None:
    """The codes behind an operand and its conversions to wider integers."""
    codes = None
    while (kind := dtype_of(value)).name.startswith(("int", "uint")):
        codes = value if kind.name.removeprefix("u") in ("int2", "int4", "int8") else codes
        if (op := maker(value, "stablehlo.convert")) is None:
            break
        value = op.operands[0]
    return codes


def _constants(program: Program, codes: list[ir.Value]) -> dict[ir.Value, np.ndarray]:
    """Those that weights and constants alone make, unpacked from bytes, say."""
    known = {v: evaluate(program, v) for v in codes}
    constant = Constant(program)
    computed = [
        v
        for v, array in known.items()
        if array is None and (names := constant.weights(v)) and pays(program, v, names)
    ]
    known |= evaluate_all(program, computed)
    return {v: np.ascontiguousarray(a) for v, a in known.items() if a is not None}


def _fits(
    op: Op, terms: int, codes: list[ir.Value], data: dict[ir.Value, np.ndarray], placement: str
) -> bool:
    """True if int32 holds every sum and, where integers are what is read, float32 as well; where
    all floats are quantized, integers stay what they are."""
    floats = all(_to_float(use.owner.operation) for use in op.results[0].uses)
    largest = {v: 255 if dtype_of(v) == np.uint8 else 128 for v in codes}
    known = {v: data[v].astype(np.int64) for v in codes if v in data}
    largest |= {v: int(np.abs(array).max(initial=0)) for v, array in known.items()}
    most = terms * math.prod(largest[v] for v in codes)
    return most < (2**31 if floats else EXACT if placement != "early" else 0)


def _to_float(op: Op) -> bool:
    return op.operation.name == "stablehlo.convert" and dtype_of(op.results[0]).kind in "fV"


def _replace(
    program: Program, op: Op, codes: list[ir.Value], data: dict[ir.Value, np.ndarray]
) -> None:
    result = op.results[0]
    with at(op):
        operands = [
            _values(program, v, data.get(v), f"{op_name(op)}:{i}") for i, v in enumerate(codes)
        ]
        product = like(op, operands, shape_of(result), F32)
        for reader in [use.owner.operation for use in result.uses if _to_float(use.owner)]:
            old = reader.results[0]
            old.replace_all_uses_with(OPS.convert(product, dtype_of(old)))
            reader.erase()
        if is_read(result):
            result.replace_all_uses_with(OPS.convert(product, np.int32))
    op.erase()


def _values(program: Program, codes: ir.Value, data: np.ndarray | None, name: str) -> ir.Value:
    """The numbers that codes are, as a dequantize."""
    if data is not None:
        source = source_of(program, codes)
        packed = source is not None and data.size > program.weights[source].nbytes
        made = as_stored(data, packed=packed)
        assert made is not None
        return store(program, source or name, *made, F32)
    if is_looked_up(program, codes):
        return OPS.convert(codes, F32)  # `recognize-dequantize` finds the whole weight
    shape, unsigned = shape_of(codes), dtype_of(codes) == np.uint8
    if unsigned:  # as signed codes with a zero point
        codes = OPS.sub(OPS.convert(codes, np.int32), 128)
    # Every code may occur.
    options = (("packing", "none"), *(() if unsigned else (("divisor", FULL),)))
    scheme = "asymmetric" if unsigned else "symmetric"
    enc = Encoding("int8", shape, (0,) * len(shape), scheme, options=options)
    parts = {"codes": OPS.convert(codes, np.int8), "scale": OPS.constant(np.ones(enc.grid, F32))}
    if unsigned:
        parts["zero_point"] = OPS.constant(np.full(enc.grid, -128, np.int32))
    return dequantize(program, enc, parts, F32, tensor=name)
