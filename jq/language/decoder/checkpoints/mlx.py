"""MLX: `value = scale * code + bias` per group of columns.

`weight` u32 [out, in * bits / 32] holds codes along the columns, the lowest bits first and without
gaps; `scales` and `biases` [out, groups]. The config's `quantization` has `group_size`, `bits` and
`mode`, and by a module's name what is otherwise there. Mode `mxfp4` has blocks of 32 e2m1 numbers
and exponents u8 as `scales`. Source: the documentation of `mlx.core.quantize`, and its kernels.

Scale and bias of a group are those of each 32 of its columns in ggml's q4_1 (q5_1), in float16. No
format of ours has more bits beside a bias, nor one of bfloat16 that float16 does not hold.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jq.formats.base import Encoding, get_format
from jq.formats.ggml import GgmlFormat
from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.checkpoints.words import fields
from jq.language.decoder.names import Leaf

_BLOCK = 32
_NAN = 255  # as an exponent of 8 bits
_FORMATS = {2: "q4_1", 3: "q4_1", 4: "q4_1", 5: "q5_1"}


@method("mlx", "scales", "weight biases")
def read(layer: Layer) -> Mapping[str, Leaf]:
    own = layer.config.get(layer.name)
    if isinstance(own, dict):  # a module may have other bits
        layer = replace(layer, config={**layer.config, **own})
    modes = {"affine": _affine, "mxfp4": _mxfp4}
    mode = layer.config.get("mode", "affine")
    if not isinstance(mode, str) or mode not in modes:
        raise layer.wrong(f"mode {mode!r:.40} is not known, {' and '.join(modes)} are")
    return {"weight": modes[mode](layer)}


def _affine(layer: Layer) -> Leaf:
    words, groups = layer.words("weight"), layer.get("scales", "f", 2).shape
    layer.get("biases", "f", 2)
    layer.need("biases", groups)
    out, columns, bits = len(words), groups[1] * _size(layer), layer.config.get("bits", 4)
    if type(bits) is not int or bits not in _FORMATS:
        raise layer.wrong(
            f"codes of {bits!r:.20} bits with a scale and a bias are in no known format"
        )
    layer.need("scales", (out, groups[1]))
    layer.need("weight", (out, columns * bits // 32))
    scale, bias = (_half(layer, name) for name in ("scales", "biases"))
    enc = Encoding(_FORMATS[bits], (out, columns), (1, _BLOCK))

    def make() -> Mapping[str, np.ndarray]:
        fmt = get_format(enc.format)
        assert isinstance(fmt, GgmlFormat)
        shape, dtype = fmt.storage(enc)["blocks"]
        blocks = np.empty((out * columns // _BLOCK, fmt.bytes), np.uint8)
        for at, halves in ((0, scale), (2, bias)):
            each = np.repeat(halves, columns // _BLOCK // groups[1], 1).reshape(-1, 1)
            blocks[:, at : at + 2] = each.view(np.uint8)
        fmt.put(fields(words, bits, columns, straddle=True).reshape(-1, _BLOCK), blocks)
        return {"blocks": blocks.reshape(shape).view(dtype)}

    return layer.stored(enc, make)


def _mxfp4(layer: Layer) -> Leaf:
    words, scales = layer.words("weight"), layer.get("scales", "iu", 2)
    if scales.dtype.itemsize != 1:
        raise layer.wrong(f"scales are {scales.dtype.name}, not exponents of 8 bits")
    shape = len(words), words.shape[1] * 8
    if shape[1] % _BLOCK:
        raise layer.wrong(f"blocks of {_BLOCK} do not divide rows of {shape[1]}")
    layer.need("scales", (shape[0], shape[1] // _BLOCK))
    if (np.ascontiguousarray(scales).view(np.uint8) == _NAN).any():
        raise layer.wrong("scales hold NaN")
    codes = np.ascontiguousarray(words).view(np.int8)
    parts = {"codes": codes, "scale": np.ascontiguousarray(scales).view(np.int8)}
    return layer.stored(Encoding("mxfp4", shape, (1, _BLOCK)), lambda: parts)


def _size(layer: Layer) -> int:
    """Columns of a group."""
    size: Any = layer.config.get("group_size", 64)
    if type(size) is not int or size < 1 or size % _BLOCK:
        raise layer.wrong(f"groups of {size!r:.20} columns are no multiple of {_BLOCK}")
    return int(size)


def _half(layer: Layer, name: str) -> np.ndarray:
    """Scales or biases in float16, which must hold them."""
    given = layer.finite(name, layer.tensors[name])
    with np.errstate(over="ignore"):
        half = np.ascontiguousarray(given.astype(np.float16))
    if not np.array_equal(half.astype(np.float32), given.astype(np.float32)):
        raise layer.wrong(f"{name} of {given.dtype.name} are no numbers of float16")
    return half
