"""Integers with a scale and a zero point for each group of columns: `scale * (code - zero point)`.

Codes stand in words of 32 bits, the lowest bits first.

- GPTQ (Frantar et al. 2023): `qweight` i32 [in * bits / 32, out] along the columns of the weight,
  `scales` [groups, out], `qzeros` i32 [groups, out * bits / 32]; `g_idx` i32 [in] is the group of
  each column. Files of the format `gptq` store zero points less 1, those of `gptq_v2` as they are.
  Source: the packing of AutoGPTQ and GPTQModel.
- AWQ (Lin et al. 2023), 4 bits: `qweight` i32 [in, out / 8] along the rows of the weight, eight a
  word in the order 0 2 4 6 1 3 5 7; `qzeros` i32 [groups, out / 8] likewise; `scales` [groups,
  out]. Source: the packing of AutoAWQ's version `gemm`.
- compressed-tensors, which llm-compressor writes: `weight_packed` i32 [out, words] and
  `weight_shape`, or `weight` i8 [out, in], stored plus half of their range where they are packed;
  `weight_scale` [1], [out, 1] or [out, groups]; `weight_zero_point` of its shape, packed along the
  rows; `weight_g_idx` as above. Floats in these files are those of `floats`. How activations are to
  be quantized (`input_scale`, ...) is not taken over. Source: compressed-tensors 0.10.

Where columns were quantized in the order of their importance, those of a group do not stand side by
side: they are brought together, and the activations come in their order."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from jq.formats import Encoding, Leaf, Parts, affine_format
from jq.formats.affine_math import FULL
from jq.frontends.checkpoints.floats import float8_weight, nvfp4_weight
from jq.frontends.checkpoints.method import Layer, method

Codes = Callable[[], np.ndarray]
_FORMATS = {2: "uint2", 3: "uint4", 4: "uint4", 8: "uint8"}
_ZERO_LESS = {"gptq": 1, "gptq_v2": 0}
_AWQ = (0, 4, 1, 5, 2, 6, 3, 7)  # the place of each row in its word


def fields(words: np.ndarray, bits: int, count: int, straddle: bool = False) -> np.ndarray:
    """The first `count` codes of each row of words: u8 [rows, count] of [rows, words]. Where they
    `straddle`, a code may begin in one word and end in the next (GPTQ's of 3 bits); else each word
    holds 32 // bits codes."""
    rows = np.ascontiguousarray(words).view(np.uint32)
    group = 32 // math.gcd(bits, 32) if straddle else 32 // bits  # codes that fill whole words
    rows = rows.reshape(len(rows), -1, max(group * bits // 32, 1))
    found = np.empty((*rows.shape[:2], group), np.uint8)
    for j in range(group):
        word, shift = divmod(j * bits, 32)
        value = rows[..., word] >> np.uint32(shift)
        if shift + bits > 32:
            value = value | rows[..., word + 1] << np.uint32(32 - shift)
        found[..., j] = value & np.uint32((1 << bits) - 1)
    return found.reshape(len(rows), -1)[:, :count]


def weight_of(
    layer: Layer,
    bits: int,
    columns: int,
    scale: np.ndarray,
    zero: np.ndarray,
    codes: Codes,
    group_of: str = "",
) -> dict[str, Leaf]:
    """The weight of `codes` u8 [out, columns], with a `scale` and u8 `zero` [out, groups], and
    `group_of`, the tensor that has the group of each column, where it is there."""
    out, groups = scale.shape
    if columns % groups:
        raise layer.wrong(f"{groups} groups do not divide {columns} columns")
    if scale.dtype.name not in ("float16", "bfloat16", "float32"):
        raise layer.wrong(f"scales are {scale.dtype.name}")
    fmt, block = affine_format(_FORMATS[bits]), (1, columns // groups if groups > 1 else 0)
    middle = fmt.bits == bits and bool((zero == 1 << (bits - 1)).all())
    encoding = Encoding(
        _FORMATS[bits], (out, columns), block, "asymmetric", scale_type=scale.dtype.name
    )
    if middle:
        encoding = replace(encoding, scheme="symmetric", options=(("divisor", FULL),))
    order = _order(layer, group_of, columns, groups)

    def packed(values: np.ndarray) -> np.ndarray:
        half = np.uint8(1 << (fmt.bits - 1))
        return fmt.pack((values.astype(np.uint8) - half).view(np.int8), encoding)

    def make() -> Parts:
        found = codes()
        parts = {"codes": packed(found if order is None else found[:, order])}
        parts["scale"] = np.ascontiguousarray(scale)
        return parts if middle else parts | {"zero_point": packed(zero)}

    made: dict[str, Leaf] = {"weight": layer.stored(encoding, make)}
    return made if order is None else made | {"order": order}


def _order(layer: Layer, name: str, columns: int, groups: int) -> np.ndarray | None:
    """The columns in the order of their groups, i32 [in]; None where they stand so."""
    if name not in layer.tensors:
        return None
    group = layer.get(name, "whole in")
    wanted = np.repeat(np.arange(groups), columns // groups)
    order = np.argsort(group, kind="stable").astype(np.int32)
    if group.shape != (columns,) or not np.array_equal(group[order], wanted):
        raise layer.wrong(f"{name} does not put {columns} columns into {groups} equal groups")
    return None if np.array_equal(group, wanted) else order


@method("gptq", "qweight", "qzeros scales g_idx")
def read_gptq(layer: Layer) -> Mapping[str, Leaf]:
    (words, scale, zeros), size = layer.all(
        qweight="word words out", scales="scale groups out", qzeros="word groups zeros"
    )
    out = size["out"]
    bits = next((b for b in _FORMATS if size["zeros"] * 32 == out * b), 0)
    if not bits or size["words"] * 32 % bits:
        raise layer.wrong(f"qzeros have shape {list(zeros.shape)}, scales {list(scale.shape)}")
    columns, kind = size["words"] * 32 // bits, layer.config.get("checkpoint_format") or "gptq"
    if not isinstance(kind, str) or kind not in _ZERO_LESS:
        raise layer.wrong(f"the format {kind!r:.40} is not known")
    zero = fields(zeros, bits, out, straddle=True) + np.uint8(_ZERO_LESS[kind])
    zero = (zero & np.uint8((1 << bits) - 1)).T

    def codes() -> np.ndarray:
        return fields(words.T, bits, columns, straddle=True)

    return weight_of(layer, bits, columns, scale.T, zero, codes, "g_idx")


@method("awq", "qweight", "qzeros scales")
def read_awq(layer: Layer) -> Mapping[str, Leaf]:
    version, bits = str(layer.config.get("version", "gemm")).lower(), layer.config.get("bits", 4)
    if version != "gemm" or bits != 4:
        raise layer.wrong(f"version {version!r} of {bits} bits is not known, 'gemm' of 4 is")
    (words, zeros, scale), size = layer.all(
        qweight="word in words", qzeros="word groups words", scales="scale groups out"
    )
    if size["words"] * 8 != size["out"]:
        raise layer.wrong(f"qweight has shape {list(words.shape)}, scales {list(scale.shape)}")

    def rows(words: np.ndarray) -> np.ndarray:
        found = fields(words, 4, size["out"]).reshape(len(words), -1, 8)
        return found[..., _AWQ].reshape(len(words), -1).T

    return weight_of(layer, 4, size["in"], scale.T, rows(zeros), lambda: rows(words))


@method(
    "compressed-tensors",
    "weight_scale",
    "weight weight_packed weight_shape weight_zero_point weight_g_idx weight_global_scale"
    " input_scale input_zero_point input_global_scale output_scale output_zero_point",
)
def read_compressed(layer: Layer) -> Mapping[str, Leaf]:
    sparsity = layer.config.get("sparsity_config") or {}
    if not isinstance(sparsity, dict):
        raise layer.wrong(f"sparsity_config is {sparsity!r:.40}")
    if sparsity.get("format", "dense") != "dense":
        raise layer.wrong(f"it is sparse ({sparsity['format']!r:.40})")
    if "weight_global_scale" in layer.tensors:
        factor = layer.finite("weight_global_scale", layer.tensors["weight_global_scale"])
        with np.errstate(divide="ignore", over="ignore"):  # what has no reciprocal is refused
            factor = np.float32(1) / factor.astype(np.float32)
        return {"weight": nvfp4_weight(layer, "weight_packed", factor)}
    if "weight_packed" in layer.tensors:
        words = layer.get("weight_packed", "word out words")
        out, columns = (int(n) for n in layer.get("weight_shape", "whole two", two=2))
        bits = next((b for b in (2, 4, 8) if words.shape == (out, math.ceil(columns * b / 32))), 0)
        if not bits:
            raise layer.wrong(f"weight_packed is {list(words.shape)} for {[out, columns]}")
        return _compressed(layer, bits, (out, columns), lambda: fields(words, bits, columns))
    weight = layer.tensors.get("weight", np.zeros(0))
    if weight.dtype == np.int8:
        weight = layer.get("weight", "signed out in")
        return _compressed(layer, 8, weight.shape, lambda: _unsigned(weight))
    return {"weight": float8_weight(layer, "weight_scale")}


def _compressed(
    layer: Layer, bits: int, shape: tuple[int, ...], codes: Codes
) -> Mapping[str, Leaf]:
    out, columns = shape
    scale = layer.finite("weight_scale", layer.tensors["weight_scale"])
    if scale.size == 1:
        scale = np.broadcast_to(scale.reshape(1, 1), (out, 1))
    if scale.ndim != 2 or len(scale) != out or not scale.size:
        raise layer.wrong(f"scales of {list(scale.shape)} do not fit a weight of {list(shape)}")
    zero = np.full(scale.shape, 1 << (bits - 1), np.uint8)
    if "weight_zero_point" in layer.tensors:
        given = layer.get("weight_zero_point", "whole rows groups")
        packed = given.dtype.itemsize == 4
        zero = fields(given.T, bits, out).T if packed else _unsigned(given, bits)
        rows = math.ceil(out * bits / 32) if packed else out
        if zero.shape != scale.shape or len(given) != rows:
            raise layer.wrong(f"weight_zero_point is {list(given.shape)}")
        if (zero >> (bits - 1) > 1).any():
            raise layer.wrong(f"weight_zero_point is no number of {bits} bits")
    return weight_of(layer, bits, columns, scale, zero, codes, "weight_g_idx")


def _unsigned(codes: np.ndarray, bits: int = 8) -> np.ndarray:
    """Signed codes i8, from 0 on."""
    return codes.view(np.uint8) + np.uint8(1 << (bits - 1))
