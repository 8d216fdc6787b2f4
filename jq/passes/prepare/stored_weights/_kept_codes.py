"""The format that holds codes as they came, and gives the numbers that the model computes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from jq.base.errors import FormatError
from jq.formats import Encoding, Format, affine_format, get_format
from jq.formats.imported import TABLE, Codebook
from jq.ir.types import number_kind
from jq.passes.prepare.stored_weights import FLOATS
from jq.passes.prepare.stored_weights import _blocks as blocks
from jq.passes.prepare.stored_weights._stored_parts import Arriving

F32 = np.dtype(np.float32)
MX = {"float8_e4m3fn": "mxfp8_e4m3", "float8_e5m2": "mxfp8_e5m2", "fp4_e2m1": "mxfp4"}  # in 32s
Parts = tuple[Encoding, dict[str, np.ndarray]]
Arrays = Mapping[str, np.ndarray]


def by_layer(made: Parts) -> Parts:
    """The parts with parameters for each index of the first axis."""
    enc, parts = made
    if enc.block[0] or "zero_point" in parts:
        return made
    own = {k: np.repeat(a, enc.shape[0], 0) for k, a in parts.items() if k != "codes"}
    return enc.with_shape(enc.shape, (1, *enc.block[1:])), parts | own


def held(
    parts: Arriving,
    values: Sequence[np.ndarray | None],
    whole: np.ndarray,
    given: Arrays,
    own: bool,
) -> Parts | None:
    """The parts in a format that has the codes, scales and zero points or minima, and that gives
    the numbers of `whole`.

    Args:
        values: those of `parts.values`.
        own: the codes are in the type that they came in."""
    codes, scale, zero, difference, minimum = values
    assert codes is not None
    scale = np.ones((), F32) if scale is None else scale
    if zero is None and (minimum is None or not minimum.any()):
        zero, minimum = np.zeros((), F32), None
    packed = not own or codes.size > max(w.nbytes for w in given.values())
    kinds, ways = {w.dtype.name for w in given.values()}, list[tuple[Parts | None, np.ndarray]]()
    if zero is not None:
        size, plain, fmt = whole, codes, _format(codes, packed=packed, table=parts.table)
        if parts.added:  # divided by the scale, and so a little off
            zero = np.rint(zero)
            size = np.abs(scale) * (np.abs(codes) + np.abs(zero))
        if difference is not None:  # without zero points, where that takes no more bits
            other = _format(difference, packed=packed, table="")
            bits = [64 if f is None else f.integer_bits or 64 for f in (other, fmt)]
            if bits[0] <= bits[1]:
                plain, zero, fmt = difference, np.zeros((), F32), other
        made = None if fmt is None else _parts(fmt, plain, scale, zero, kinds, parts.numbers)
        ways.append((made, size))
    if minimum is not None and not parts.table:
        made = blocks.with_minimum(codes, scale, minimum, kinds)
        ways.append((made, whole if made is None else blocks.rounded_sizes(made)))
    sound = (m for m, size in ways if m and _gives(m, whole, np.abs(size)) and _small(m, given))
    return next(sound, None)


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
    """False for a small weight that is repeated, and for one with a scale for each number."""
    size = sum(a.nbytes for a in made[1].values())
    return 2 * size <= 3 * sum(a.nbytes for a in given.values())


def as_stored(codes: np.ndarray, *, packed: bool) -> Parts | None:
    """Integers, of scale 1; None where they take more than 8 bits. `packed`: several in a byte."""
    fmt = _format(codes, packed=packed, table="")
    return None if fmt is None else _parts(fmt, codes, np.ones((), F32), np.zeros((), F32), set())


def _parts(
    fmt: Format,
    codes: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray,
    kinds: set[str],
    numbers: Sequence[float] = (),
) -> Parts | None:
    """The codes in a format, with the numbers of its table; None where it does not hold them."""
    block, (scale, zero) = blocks.in_blocks(codes.shape, (scale, zero))
    enc = Encoding(fmt.name, codes.shape, block, scale_type=blocks.scale_type((scale,), kinds))
    if isinstance(fmt, Codebook):
        enc = replace(enc, options=((TABLE, fmt.written(np.asarray(numbers))),))
    parts = {"scale": scale.astype(enc.scale_type)}
    narrow = "float8_e8m0fnu" in kinds or (fmt.name == "fp4_e2m1" and "uint8" in kinds)
    if narrow and (exponents := _exponents(scale)) is not None:
        parts = {"scale": exponents}
        if sorted(block) == [1] * (len(block) - 1) + [32]:
            fmt = get_format(MX.get(fmt.name, fmt.name))
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
    """The format of codes. `packed`: they came several in a byte."""
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


def _gives(made: Parts, whole: np.ndarray, size: np.ndarray) -> bool:
    """True if the parts stand for the numbers of the model, each rounded at most twice.

    `size`: of what was rounded."""
    enc, parts = made
    decoded = np.asarray(get_format(enc.format).to_numpy(parts, enc), np.float64)
    bound = 2.0 ** -ml_dtypes.finfo(whole.dtype).nmant
    return bool((abs(decoded - whole.astype(np.float64)) <= bound * size.astype(np.float64)).all())


def without_zero_scales(enc: Encoding, parts: Arrays) -> Arrays:
    """The same numbers with codes of 0 where a scale is 0: no rescale divides by such a scale."""
    codes, scale = parts.get("codes"), parts.get("scale")
    if codes is None or scale is None or scale.all() or scale.dtype.kind != "f":
        return parts
    if codes.dtype.name not in ("int8", "int16") or codes.shape != enc.shape or max(enc.block) > 1:
        return parts
    least = np.abs(scale).min(initial=np.inf, where=scale != 0)
    other = least if np.isfinite(least) else np.float32(2**-24)
    none = np.asarray(parts.get("zero_point", 0)).astype(codes.dtype)
    return {
        **parts,
        "codes": np.where(scale == 0, none, codes),
        "scale": np.where(scale == 0, other, scale).astype(scale.dtype),
    }
