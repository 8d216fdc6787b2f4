"""Refusals that every format shares: a `FormatError` each."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from jq.base.errors import FormatError
from jq.formats.base import Encoding

SCALE_TYPES = ("float32", "float16", "bfloat16")
SMALLEST_SCALE = np.float32(2.0**-126)  # below it is subnormal, which some devices flush to 0


def check_choice(enc: Encoding, what: str, value: str, allowed: Sequence[str]) -> None:
    """Refuses a value of `what` that is not among the `allowed` ones, which the hint lists."""
    if value not in allowed:
        hint = f"choose one of {', '.join(allowed)}"
        raise FormatError(f"{enc.format} has no {what} {value!r}", hint=hint)


def check_options(enc: Encoding, allowed: Mapping[str, Sequence[str]]) -> None:
    """Refuses options of an encoding that are unknown, or have another value than those listed."""
    for name, value in enc.options:
        check_choice(enc, "option", name, tuple(allowed))
        check_choice(enc, name, value, allowed[name])


def check_not_empty(enc: Encoding) -> None:
    """Refuses an encoding of a tensor without elements, whose blocks have no largest value."""
    if math.prod(enc.shape) == 0:
        raise FormatError(f"{enc.format} cannot hold an empty tensor of shape {enc.shape}")


def check_shape(x: np.ndarray, enc: Encoding) -> None:
    """Refuses an array of another shape than that of the encoding."""
    if x.shape != enc.shape:
        raise FormatError(f"array of shape {x.shape} for an encoding of shape {enc.shape}")


def as_float32(x: np.ndarray) -> np.ndarray:
    """A piece of a tensor in float32; what is beyond becomes infinity."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32)


def check_finite(x: np.ndarray, enc: Encoding) -> None:
    """Refuses NaN and infinity among values, or among the extremes of their blocks."""
    if not np.isfinite(x).all():
        what = f"{enc.format} cannot hold NaN or infinity"
        raise FormatError(what, hint="the weights are damaged or overflow")


def scales_vanish(parts: Mapping[str, np.ndarray]) -> bool:
    """True if all scales are too small for float16, so that codes are 0; a block of zeros has 1."""
    scale = parts.get("scale", np.ones(1))
    largest = scale.max(where=scale != 1, initial=0)
    return scale.dtype == np.float16 and 0 < largest <= np.finfo(np.float16).smallest_subnormal


def as_scale(scale: np.ndarray, enc: Encoding) -> np.ndarray:
    """Positive float32 scales in `enc.scale_type`; none becomes 0, and one too large is refused."""
    with np.errstate(over="ignore"):
        stored = scale.astype(enc.scale_type)
    if not np.isfinite(stored.astype(np.float32)).all():
        what = f"{enc.format}: a block needs a scale beyond {enc.scale_type}"
        raise FormatError(what, hint="use float32 scales")
    if stored.dtype == np.float16:  # the other types reach 2^-126
        stored = np.maximum(stored, np.finfo(np.float16).smallest_subnormal)
    return np.asarray(stored)
