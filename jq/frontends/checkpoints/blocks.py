"""Blocks of columns with tables or biases of their own.

- bitsandbytes (Dettmers et al. 2022 and 2023), nf4 in blocks of the flat weight: `weight` u8
  [out * in / 2, 1], the first of two codes in the high half; `weight.absmax`, the largest magnitude
  of each block, f32, or u8 codes of a table (`weight.nested_quant_map`) that are multiplied by
  `weight.nested_absmax` for each 256 of them and added to `nested_offset`;
  `weight.quant_state.bitsandbytes__nf4` u8 is JSON of the shape and the sizes of blocks. 8 bits:
  `weight` i8 [out, in], `SCB` f32 [out], the largest magnitude of a row, for which 127 stands.
  Source: `QuantState` of `bitsandbytes/functional.py`.
- MLX, `scale * code + bias`: `weight` u32 [out, in * bits / 32] along the columns, without gaps;
  `scales` and `biases` [out, groups]. The config's `quantization` has `group_size`, `bits` and
  `mode`, and by a module's name what is otherwise there. Mode `mxfp4` has blocks of 32 e2m1 numbers
  and exponents u8 as `scales`. Source: the documentation of `mlx.core.quantize`, and its kernels.

Scale and bias of a group of MLX are those of each 32 columns in ggml's q4_1 (q5_1), in float16. No
format of ours has more bits beside a bias, nor one of bfloat16 that float16 does not hold."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import as_object
from jq.formats import Encoding, Leaf, Parts, get_format
from jq.formats.floats import NORMAL_QUANTILES
from jq.formats.ggml import GgmlFormat
from jq.frontends.checkpoints.floats import NAN
from jq.frontends.checkpoints.integers import fields
from jq.frontends.checkpoints.method import Layer, method

_STATE = "weight.quant_state.bitsandbytes__"
_LARGEST = float(np.finfo(np.float32).max)
_ROUNDED = 1e-6  # of the table, which files hold in float32
_BLOCK = 32
_FORMATS = {2: "q4_1", 3: "q4_1", 4: "q4_1", 5: "q5_1"}


@method(
    "bitsandbytes",
    f"SCB {_STATE}nf4 {_STATE}fp4",
    "weight weight_format weight.absmax weight.quant_map weight.nested_absmax"
    " weight.nested_quant_map",
)
def read_bitsandbytes(layer: Layer) -> Mapping[str, Leaf]:
    if "SCB" not in layer.tensors:
        return {"weight": _nf4(layer)}
    (codes, most), _ = layer.all(weight="signed out in", SCB="scale out")
    scale = most.astype(np.float32)[:, None] / np.float32(127)
    full = (("divisor", "absmax/127.5"),)  # every code may occur
    encoding = Encoding("int8", codes.shape, (1, 0), options=full)
    return {"weight": layer.stored(encoding, lambda: {"codes": codes, "scale": scale})}


def _nf4(layer: Layer) -> Leaf:
    state = _state(layer)
    shape = _sizes(layer, "shape", state.get("shape"), 2)
    (size,) = _sizes(layer, "blocksize", [state.get("blocksize")], 1)
    count, columns = math.prod(shape), shape[1]
    if columns % size:
        raise layer.wrong(f"blocks of {size} do not divide rows of {columns}")
    table = layer.get("weight.quant_map", "float codes", codes=16)
    if not np.allclose(table, NORMAL_QUANTILES, rtol=0, atol=_ROUNDED):
        raise layer.wrong("its table is not that of nf4")
    packed, grid = layer.get("weight", "byte n one"), (shape[0], columns // size)
    if packed.size * 2 != count or count % 2:
        raise layer.wrong(f"weight has {packed.size} bytes for {list(shape)}")
    nested = layer.tensors.get("weight.absmax", packed).dtype == np.uint8
    kind = "byte blocks" if nested else "float blocks"
    absmax = layer.get("weight.absmax", kind, blocks=math.prod(grid))
    scale = _nested(layer, state, absmax) if nested else absmax
    scale = layer.finite("weight.absmax", scale.astype(np.float32)).reshape(grid)

    def make() -> Parts:
        bytes_ = packed.reshape(shape[0], -1)
        return {"codes": (bytes_ >> 4 | bytes_ << 4).view(np.int8), "scale": scale}

    return layer.stored(Encoding("nf4", shape, (1, size)), make)


def _state(layer: Layer) -> dict[str, Any]:
    if f"{_STATE}nf4" not in layer.tensors:
        raise layer.wrong("it is fp4 of bitsandbytes, whose table is not known; nf4 is")
    text = bytes(layer.get(f"{_STATE}nf4", "byte n"))
    try:
        return as_object(text, layer.where)
    except UserError as error:
        raise layer.wrong(f"its state: {error.message}") from error


def _nested(layer: Layer, state: Mapping[str, Any], codes: np.ndarray) -> np.ndarray:
    """Largest magnitudes that are quantized themselves."""
    table = layer.get("weight.nested_quant_map", "scale codes", codes=256)
    (size,) = _sizes(layer, "nested_blocksize", [state.get("nested_blocksize")], 1)
    offset, blocks = state.get("nested_offset", 0.0), math.ceil(codes.size / size)
    if type(offset) not in (int, float) or not abs(offset) <= _LARGEST:  # NaN is not
        raise layer.wrong(f"nested_offset is {offset!r:.40}")
    most = layer.get("weight.nested_absmax", "scale blocks", blocks=blocks).astype(np.float32)
    factors = np.repeat(most, min(size, codes.size))[: codes.size]
    with np.errstate(over="ignore"):  # the sums are checked
        return table.astype(np.float32)[codes] * factors + np.float32(offset)


def _sizes(layer: Layer, name: str, values: Any, count: int) -> tuple[int, ...]:
    whole = isinstance(values, list) and all(type(n) is int and n > 0 for n in values)
    if not whole or len(values) != count:
        raise layer.wrong(f"{name} is {values!r:.40}")
    return tuple(values)


@method("mlx", "scales", "weight biases")
def read_mlx(layer: Layer) -> Mapping[str, Leaf]:
    own = layer.config.get(layer.name)
    if isinstance(own, dict):  # a module may have other bits
        layer = replace(layer, config={**layer.config, **own})
    modes = {"affine": _affine, "mxfp4": _mxfp4}
    mode = layer.config.get("mode", "affine")
    if not isinstance(mode, str) or mode not in modes:
        raise layer.wrong(f"mode {mode!r:.40} is not known, {' and '.join(modes)} are")
    return {"weight": modes[mode](layer)}


def _affine(layer: Layer) -> Leaf:
    bits, group = layer.config.get("bits", 4), layer.config.get("group_size", 64)
    if type(bits) is not int or bits not in _FORMATS:
        what = f"codes of {bits!r:.20} bits with a scale and a bias are in no known format"
        raise layer.wrong(what)
    if type(group) is not int or group < 1 or group % _BLOCK:
        raise layer.wrong(f"groups of {group!r:.20} columns are no multiple of {_BLOCK}")
    (words, scales, biases), size = layer.all(
        weight="word out words", scales="scale out groups", biases="scale out groups"
    )
    out, columns = size["out"], size["groups"] * group
    layer.get("weight", "word out words", words=columns * bits // 32)
    scale, bias = _half(layer, "scales", scales), _half(layer, "biases", biases)
    enc = Encoding(_FORMATS[bits], (out, columns), (1, _BLOCK))

    def make() -> Parts:
        fmt = get_format(enc.format)
        assert isinstance(fmt, GgmlFormat)
        shape, dtype = fmt.storage(enc)["blocks"]
        blocks = np.empty((out * columns // _BLOCK, fmt.bytes), np.uint8)
        for at, halves in ((0, scale), (2, bias)):
            each = np.repeat(halves, group // _BLOCK, 1).reshape(-1, 1)
            blocks[:, at : at + 2] = each.view(np.uint8)
        fmt.put(fields(words, bits, columns, straddle=True).reshape(-1, _BLOCK), blocks)
        return {"blocks": blocks.reshape(shape).view(dtype)}

    return layer.stored(enc, make)


def _half(layer: Layer, name: str, given: np.ndarray) -> np.ndarray:
    """Scales or biases in float16, which must hold them."""
    with np.errstate(over="ignore"):
        half = np.ascontiguousarray(given.astype(np.float16))
    if not np.array_equal(half.astype(np.float32), given.astype(np.float32)):
        raise layer.wrong(f"{name} of {given.dtype.name} are no numbers of float16")
    return half


def _mxfp4(layer: Layer) -> Leaf:
    words = layer.get("weight", "word out words")
    out, columns = len(words), words.shape[1] * 8
    if columns % _BLOCK:
        raise layer.wrong(f"blocks of {_BLOCK} do not divide rows of {columns}")
    scales = layer.get("scales", "byte out groups", out=out, groups=columns // _BLOCK)
    if (scales == NAN).any():
        raise layer.wrong("scales hold NaN")
    codes = np.ascontiguousarray(words).view(np.int8)
    parts = {"codes": codes, "scale": np.ascontiguousarray(scales).view(np.int8)}
    return layer.stored(Encoding("mxfp4", (out, columns), (1, _BLOCK)), lambda: parts)
