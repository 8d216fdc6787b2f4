"""Codes in words of 32 bits, the lowest bits first: what GPTQ, AWQ and compressed-tensors store."""

import math
from dataclasses import replace

import numpy as np

from jq.formats.affine import affine_format
from jq.formats.affine_math import FULL
from jq.formats.base import Encoding
from jq.language.decoder.checkpoints.method import Layer

BITS = (2, 3, 4, 8)
_FORMATS = {2: "uint2", 3: "uint4", 4: "uint4", 8: "uint8"}


def fields(words: np.ndarray, bits: int, count: int, straddle: bool = False) -> np.ndarray:
    """The first `count` codes of each row of words: u8 [rows, count] of [rows, words].

    Args:
        straddle: a code may begin in one word and end in the next (GPTQ's of 3 bits); else each
            word holds 32 // bits codes.
    """
    rows = np.ascontiguousarray(words).view(np.uint32)
    if straddle:
        group = 32 // math.gcd(bits, 32)  # codes that fill whole words
        rows = rows.reshape(len(rows), -1, group * bits // 32)
        found = np.empty((*rows.shape[:2], group), np.uint8)
        for j in range(group):
            word, shift = divmod(j * bits, 32)
            value = rows[..., word] >> np.uint32(shift)
            if shift + bits > 32:
                value = value | rows[..., word + 1] << np.uint32(32 - shift)
            found[..., j] = value & np.uint32((1 << bits) - 1)
    else:
        found = np.empty((*rows.shape, 32 // bits), np.uint8)
        for j in range(32 // bits):
            found[..., j] = rows >> np.uint32(j * bits) & np.uint32((1 << bits) - 1)
    return found.reshape(len(rows), -1)[:, :count]


def encoding_of(layer: Layer, bits: int, shape: tuple[int, int], scale: np.ndarray) -> Encoding:
    """The encoding of codes of `bits` bits with a zero point, `scale` of [out, groups].

    Raises:
        UserError: the groups do not divide the columns, or scales are of no known type.
    """
    out, columns = shape
    groups = scale.shape[-1]
    if scale.shape != (out, groups) or not groups or columns % groups:
        raise layer.wrong(f"scales of {list(scale.shape)} do not fit a weight of {list(shape)}")
    if scale.dtype.name not in ("float16", "bfloat16", "float32"):
        raise layer.wrong(f"scales are {scale.dtype.name}")
    block = (1, columns // groups if groups > 1 else 0)
    return Encoding(_FORMATS[bits], shape, block, "asymmetric", scale.dtype.name)


def settled(encoding: Encoding, bits: int, zero: np.ndarray) -> Encoding:
    """Without zero points where all of them are the middle of the codes."""
    if affine_format(encoding.format).bits == bits and (zero == 1 << (bits - 1)).all():
        return replace(encoding, scheme="symmetric", options=(("divisor", FULL),))
    return encoding


def parts_of(
    encoding: Encoding, codes: np.ndarray, scale: np.ndarray, zero: np.ndarray
) -> dict[str, np.ndarray]:
    """The stored parts of codes and zero points that are not negative: u8 of [out, in] and of
    [out, groups]."""
    fmt = affine_format(encoding.format)
    half = 1 << (fmt.bits - 1)

    def signed(values: np.ndarray) -> np.ndarray:
        return (values.astype(np.uint8) - np.uint8(half)).view(np.int8)

    parts = {"codes": fmt.pack(signed(codes), encoding), "scale": np.ascontiguousarray(scale)}
    if encoding.scheme == "asymmetric":
        parts["zero_point"] = fmt.pack(signed(zero), encoding)
    return parts


def order_of(layer: Layer, name: str, columns: int, groups: int) -> np.ndarray | None:
    """The columns in the order of their groups, i32 [in], from the group of each; None where they
    stand so."""
    if name not in layer.tensors:
        return None
    group = layer.get(name, "iu", 1)
    wanted = np.repeat(np.arange(groups), columns // groups)
    order = np.argsort(group, kind="stable").astype(np.int32)
    if group.shape != (columns,) or not np.array_equal(group[order], wanted):
        raise layer.wrong(f"{name} does not put {columns} columns into {groups} equal groups")
    return None if np.array_equal(group, wanted) else order
