"""The format that holds codes as they came, and gives the numbers that the model computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from jq.errors import FormatError
from jq.formats import Encoding, Format, get_format
from jq.formats.affine import affine_format
from jq.ir.types import number_kind
from jq.passes.prepare.arriving._stored_parts import FLOATS, Arriving

F32 = np.dtype(np.float32)
Parts = tuple[Encoding, dict[str, np.ndarray]]
Arrays = Mapping[str, np.ndarray]


def by_layer(made: Parts) -> Parts:
    """With parameters for each index of the first axis."""
    enc, parts = made
    if enc.block[0] or "zero_point" in parts:
        return made
    scale = np.repeat(parts["scale"], enc.shape[0], 0)
    return enc.with_shape(enc.shape, (1, *enc.block[1:])), {**parts, "scale": scale}


def held(
    parts: Arriving, arrays: Iterator[np.ndarray], whole: np.ndarray, given: Arrays, *, own: bool
) -> Parts | None:
    """In a format that has the codes, scales and zero points, and gives the numbers of `whole`.

    `own`: the codes are in the type that they came in.
    """
    codes = next(arrays)
    scale = next(arrays) if parts.scale is not None else np.ones((), F32)
    zero = next(arrays) if parts.zero is not None else np.zeros((), F32)
    packed = not own or codes.size > max(w.nbytes for w in given.values())
    fmt = _format(codes, packed=packed, table=parts.table)
    if parts.difference is not None:
        codes, zero, fmt = _simpler(codes, zero, fmt, next(arrays), packed=packed)
    if parts.added:  # divided by the scale, and so a little off
        zero = np.rint(zero)
    kinds = {w.dtype.name for w in given.values()}
    made = None if fmt is None else _parts(fmt, codes, scale, zero, kinds)
    size = np.abs(scale) * (np.abs(codes) + np.abs(zero)) if parts.added else np.abs(whole)
    return made if made and _gives(made, whole, size) and _small(made, given) else None


def integral(whole: np.ndarray, given: Arrays) -> Parts | None:
    """Integers, whatever they were computed from: a table, bits, a choice of two numbers."""
    if not whole.size or not np.array_equal(whole, np.rint(whole)) or np.ptp(whole) > 255:
        return None
    packed = whole.size > max(
        (w.nbytes for w in given.values() if w.dtype.name not in FLOATS), default=0
    )
    made = as_stored(whole.astype(np.int32), packed=packed)
    return made if made and _small(made, given) else None


def _small(made: Parts, given: Arrays) -> bool:
    """Not a small weight that is repeated, nor one with a scale for each number."""
    size = sum(a.nbytes for a in made[1].values())
    return 2 * size <= 3 * sum(a.nbytes for a in given.values())


def _simpler(
    codes: np.ndarray, zero: np.ndarray, fmt: Format | None, difference: np.ndarray, *, packed: bool
) -> tuple[np.ndarray, np.ndarray, Format | None]:
    """Codes without zero points where they have no more bits than those with."""
    plain = _format(difference, packed=packed, table="")
    bits = [64 if f is None else f.integer_bits or 64 for f in (plain, fmt)]
    if bits[0] > bits[1]:
        return codes, zero, fmt
    return difference, np.zeros((), F32), plain


def as_stored(codes: np.ndarray, *, packed: bool) -> Parts | None:
    """Integers, with a scale of 1; None where they take more than 8 bits. `packed`: they came
    several in a byte."""
    fmt = _format(codes, packed=packed, table="")
    return None if fmt is None else _parts(fmt, codes, np.ones((), F32), np.zeros((), F32), set())


def _parts(
    fmt: Format, codes: np.ndarray, scale: np.ndarray, zero: np.ndarray, kinds: set[str]
) -> Parts | None:
    """The codes as they are in a format; None where it does not hold them."""
    block = tuple(_run(codes.shape, a, (scale, zero)) for a in range(codes.ndim))
    scale, zero = (_sampled(np.broadcast_to(x, codes.shape), block) for x in (scale, zero))
    kept = (k for k in sorted(kinds & {"bfloat16", "float16"}) if _same(scale, np.dtype(k)))
    enc = Encoding(fmt.name, codes.shape, block, scale_type=next(kept, "float32"))
    parts = {"scale": scale.astype(enc.scale_type)}
    narrow = "float8_e8m0fnu" in kinds or (fmt.name == "fp4_e2m1" and "uint8" in kinds)
    if narrow and (exponents := _exponents(scale)) is not None:
        fmt, parts = _with_exponents(fmt, block), {"scale": exponents}
        enc = replace(enc, format=fmt.name, scale_type="float8_e8m0fnu")
    if (held := fmt.of_codes(codes, zero, enc)) is None:
        return None
    enc, stored = held
    try:
        fmt.check(enc)
    except FormatError:
        return None
    return enc, {"codes": stored.pop("codes"), **parts, **stored}


def _format(codes: np.ndarray, *, packed: bool, table: str) -> Format | None:
    """What codes are in. `packed`: they came several in a byte."""
    if table:
        return get_format(table)
    name = codes.dtype.name
    if name == "float4_e2m1fn":
        return get_format("fp4_e2m1")
    whole = number_kind(codes.dtype) == "i"
    if name in Format.registry and not (whole and packed):
        return get_format(name)
    if not whole or not codes.size:
        return None
    low, high = int(codes.min()), int(codes.max())
    sizes = (*(("int2", "uint2") if packed else ()), "int4", "uint4", "int8", "uint8")
    for fmt in (affine_format(n) for n in sizes):
        first = 0 if fmt.unsigned else -(1 << (fmt.bits - 1))
        if first <= low and high < first + (1 << fmt.bits):
            return fmt
    return None


def _exponents(scale: np.ndarray) -> np.ndarray | None:
    """The e8m0 codes of powers of two; None for other numbers."""
    mantissa, exponent = np.frexp(scale)
    codes = exponent + 126
    exact = (mantissa == 0.5).all() and (codes >= 0).all() and (codes < 255).all()
    return codes.astype(np.uint8).view(np.int8) if exact else None


def _with_exponents(fmt: Format, block: tuple[int, ...]) -> Format:
    """The MX format of an element where its blocks are those of MX."""
    mx = {"float8_e4m3fn": "mxfp8_e4m3", "float8_e5m2": "mxfp8_e5m2", "fp4_e2m1": "mxfp4"}
    one = sorted(block) == [1] * (len(block) - 1) + [32]
    return get_format(mx[fmt.name]) if one and fmt.name in mx else fmt


def _run(shape: tuple[int, ...], axis: int, arrays: Sequence[np.ndarray]) -> int:
    """How many indices of an axis share their parameters; 0 for all."""
    starts = {0}
    for x in (np.broadcast_to(a, shape) for a in arrays):
        differ = np.moveaxis(x[_from(axis, 1)] != x[_to(axis, -1)], axis, 0)
        starts |= set((np.flatnonzero(differ.any(tuple(range(1, differ.ndim)))) + 1).tolist())
    return 0 if starts == {0} else math.gcd(*starts, shape[axis])


def _from(axis: int, start: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(start, None),)


def _to(axis: int, end: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(None, end),)


def _sampled(x: np.ndarray, block: tuple[int, ...]) -> np.ndarray:
    """One number for each block."""
    steps = tuple(slice(None, None, b) if b else slice(0, 1) for b in block)
    return np.ascontiguousarray(x[steps])


def _same(x: np.ndarray, dtype: np.dtype[Any]) -> bool:
    return np.array_equal(x.astype(dtype).astype(x.dtype), x)


def _gives(made: Parts, whole: np.ndarray, size: np.ndarray) -> bool:
    """Whether the parts stand for the numbers of the model, each rounded at most twice.

    `size`: of what was rounded.
    """
    enc, parts = made
    fmt = get_format(enc.format)
    decoded = np.asarray(fmt.to_numpy(parts, enc), np.float64)
    bound = 2.0 ** -ml_dtypes.finfo(whole.dtype).nmant
    return bool(
        (np.abs(decoded - whole.astype(np.float64)) <= bound * size.astype(np.float64)).all()
    )
