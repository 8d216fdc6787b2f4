"""Parts of tensors in element types of their own, one number an element, and as they are stored.

    tensor<64x20xi8>, two codes in a byte    <->  tensor<64x40xf4E2M1FN>
    tensor<2x40xi8>, the bits of exponents   <->  tensor<2x40xf8E8M0FNU>

Which type a part has its format says (`Format.element_types`). Stored weights become arrays of that
type; what a program computes becomes one by `in_elements`, and is stored again by `in_bytes`."""

import math
from typing import Any, cast

import ml_dtypes
import numpy as np

from jq.base.deep import Steps, deep
from jq.base.errors import UserError
from jq.formats import NUMPY, Array, ArrayOps, Encoding, get_format
from jq.formats.packing import pack, unpack
from jq.ir import OPS, Program, dtype_of, ir, shape_of, tensor_type
from jq.ir.build import create
from jq.ir.constants import FLOAT4
from jq.ir.encodings import encoding_in
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops.dataflow import Encodings
from jq.ir.ops.lattice import Encoded
from jq.ir.ops.lookup import of_one_type
from jq.ir.quantized.types import encoding_of_type, is_quantized

I8 = np.dtype(np.int8)
ELEMENT_TYPES = frozenset(
    np.dtype(name)
    for name in ("int2", "int4", "uint4", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
)  # of codes; scales have float8_e8m0fnu, too


def type_of(enc: Encoding, part: str) -> np.dtype[Any]:
    """The element type of a part that has one."""
    return get_format(enc.format).element_types(enc)[part]


def as_elements(array: np.ndarray, enc: Encoding, part: str) -> np.ndarray:
    """A stored part as an array of its element type."""
    dtype, codes = type_of(enc, part), np.asarray(_codes(NUMPY, np.asarray(array), enc, part))
    return codes.astype(dtype) if _is_integer(dtype) else codes.view(dtype)


def as_stored(array: np.ndarray, enc: Encoding, part: str) -> np.ndarray:
    """An array of a part's element type as it is stored."""
    integer, bits = _is_integer(array.dtype), _bits(enc, part)
    codes = np.asarray(array.astype(I8) if integer else array.view(I8))
    if array.dtype == FLOAT4:
        codes = codes & np.int8(15)
    filler = get_format(enc.format).filler
    return pack(codes + np.int8(filler), bits, filler) if bits < 8 else codes


def in_elements(value: ir.Value, enc: Encoding, part: str) -> ir.Value:
    """A stored part of a program in its element type."""
    dtype, codes = type_of(enc, part), _codes(OPS, value, enc, part)
    if _is_integer(dtype):
        return _as("convert", codes, dtype)
    if dtype != FLOAT4:
        return _as("bitcast_convert", codes, dtype)
    # The sign bit of the nibble becomes that of the byte.
    signed = OPS.shift_right_signed(OPS.shift_left(codes, 4), 4)
    return _as("bitcast_convert", _as("convert", signed, ml_dtypes.int4), dtype)


def in_bytes(value: ir.Value) -> ir.Value:
    """A part that a program has computed, in bytes: of an encoding that does not pack them."""
    dtype = dtype_of(value)
    if _is_integer(dtype):
        return _as("convert", value, I8)
    if dtype != FLOAT4:
        return _as("bitcast_convert", value, I8)
    nibbles = _as("convert", _as("bitcast_convert", value, ml_dtypes.int4), I8)
    return OPS.bit_and(nibbles, 15)


def _codes(ops: ArrayOps, value: Array, enc: Encoding, part: str) -> Array:
    """A part in int8, one number a byte: signed codes, or the bits of floats."""
    bits = _bits(enc, part)
    if bits >= 8:
        return value
    shape = enc.shape if part == "codes" else enc.grid
    fields, filler = unpack(ops, value, shape, bits), get_format(enc.format).filler
    return ops.sub(fields, filler) if filler else fields


def _bits(enc: Encoding, part: str) -> int:
    """Bits of a stored number."""
    return 8 if part == "scale" else get_format(enc.format).stored_bits(enc)


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return "int" in dtype.name


def _as(kind: str, value: ir.Value, dtype: Any) -> ir.Value:
    return create(f"stablehlo.{kind}", tensor_type(shape_of(value), dtype), value)


# Who is quantized, and how: the answer for any value of a program, at any level.
def encoding(program: Program, value: ir.Value | str) -> Encoding | None:
    """The encoding of a value, by the model or by the compiler; None where its numbers are floats.

    Args:
        program: of any level; every call analyses it anew (`Encodings` answers for many values).
        value: a float value of the program, codes that one stands for, a value with a quantized
            type (of the module that `--emit qdq` writes), or the name of a stored weight. Sums of
            32 bits are in no format.

    Example:
        ```python
        small = jq.quantize_weights(model, "int4", weight_num_threshold=64)
        print(jq.encoding(jq.trace(small).program, "head/kernel").format)  # int4
        ```"""
    if not isinstance(cast("Any", program), Program):
        hint = "see jq.trace and jq.rewrite"
        raise UserError(f"encoding takes a program: {program!r:.99}", hint=hint)
    if isinstance(value, str):
        entry = program.encodings.get(value)
        return None if entry is None else encoding_in(entry)
    if marker := match(value, DEQUANTIZE):
        return marker.encoding
    if is_quantized(value.type):
        return encoding_of_type(value.type)
    if dtype_of(value).kind in "iu" or dtype_of(value) in ELEMENT_TYPES:
        return _of_codes(value)
    state = Encodings(program).of(value)
    return state.encoding if isinstance(state, Encoded) else None


@deep
def _of_codes(value: ir.Value) -> Steps[Encoding | None]:
    """The encoding that integers are dequantized by, after what moves or chooses them."""
    for use in value.uses:
        reader = match(use.owner, DEQUANTIZE)
        if reader is not None and reader.parts["codes"] == value:
            return reader.encoding
        results = list(use.owner.results)
        if len(results) == 1 and is_quantized(results[0].type):
            return encoding_of_type(results[0].type)  # a cast
        if len(results) != 1 or dtype_of(results[0]) != dtype_of(value):
            continue
        if use.operand_number not in of_one_type(use.owner):
            continue
        after = yield (results[0],)
        if after is not None and math.prod(after.grid) == 1:
            shape = shape_of(value)
            return after.with_shape(shape, (0,) * len(shape))
    return None
