"""compressed-tensors, which llm-compressor writes: packed or plain integers, and 8-bit floats.

With `weight_packed` i32 [out, words] and `weight_shape`, or with `weight` i8 [out, in]:
`value = scale * (code - zero point)`, packed codes and zero points stored plus half of their range.
With `weight` f8 [out, in]: `value = scale * code`. With `weight_packed` u8 [out, in / 2] and
`weight_global_scale`: `value = e2m1 code * scale / global scale`.

`weight_scale` is [1], [out, 1], [out, groups] or a number for each block; `weight_zero_point` has
its shape, packed along the rows where the weight is packed; `weight_g_idx` is the group of each
column. How activations are to be quantized (`input_scale`, ...) is not taken over. Source: the
compressors of compressed-tensors 0.10.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from jq.language.decoder.checkpoints.float4 import nvfp4_weight
from jq.language.decoder.checkpoints.float8 import float8_weight
from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.checkpoints.words import encoding_of, fields, order_of, parts_of, settled
from jq.language.decoder.names import Leaf

Codes = Callable[[], np.ndarray]
_OTHERS = (
    "weight weight_packed weight_shape weight_zero_point weight_g_idx weight_global_scale"
    " input_scale input_zero_point input_global_scale output_scale output_zero_point"
)


@method("compressed-tensors", "weight_scale", _OTHERS)
def read(layer: Layer) -> Mapping[str, Leaf]:
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
        return _packed(layer)
    weight = layer.get("weight", "iuf", 2)
    if weight.dtype == np.int8:
        return _integers(layer, weight.shape, 8, lambda: _unsigned(weight))
    return {"weight": float8_weight(layer, "weight_scale")}


def _packed(layer: Layer) -> Mapping[str, Leaf]:
    words = layer.words("weight_packed")
    layer.get("weight_shape", "iu", 1)
    layer.need("weight_shape", (2,))
    out, columns = (int(n) for n in layer.tensors["weight_shape"])
    bits = next((b for b in (2, 4, 8) if words.shape == (out, math.ceil(columns * b / 32))), 0)
    if not bits:
        raise layer.wrong(f"weight_packed is {list(words.shape)} for {[out, columns]}")
    return _integers(layer, (out, columns), bits, lambda: fields(words, bits, columns))


def _integers(layer: Layer, shape: tuple[int, ...], bits: int, codes: Codes) -> Mapping[str, Leaf]:
    out, columns = shape
    scale = layer.finite("weight_scale", layer.tensors["weight_scale"])
    if scale.size == 1:
        scale = np.broadcast_to(scale.reshape(1, 1), (out, 1))
    zero = np.full(scale.shape, 1 << (bits - 1), np.uint8)
    if "weight_zero_point" in layer.tensors:
        given = layer.get("weight_zero_point", "iu", 2)
        packed = given.dtype.itemsize == 4
        zero = fields(given.T, bits, out).T if packed else _unsigned(given, bits)
        rows = math.ceil(out * bits / 32) if packed else out
        if zero.shape != scale.shape or len(given) != rows:
            raise layer.wrong(f"weight_zero_point is {list(given.shape)}")
        if (zero >> (bits - 1) > 1).any():
            raise layer.wrong(f"weight_zero_point is no number of {bits} bits")
    encoding = settled(encoding_of(layer, bits, (out, columns), scale), bits, zero)
    order = order_of(layer, "weight_g_idx", columns, scale.shape[-1])

    def make() -> Mapping[str, np.ndarray]:
        found = codes()
        return parts_of(encoding, found if order is None else found[:, order], scale, zero)

    found: dict[str, Leaf] = {"weight": layer.stored(encoding, make)}
    return found if order is None else found | {"order": order}


def _unsigned(codes: np.ndarray, bits: int = 8) -> np.ndarray:
    """Signed codes i8, from 0 on."""
    return codes.view(np.uint8) + np.uint8(1 << (bits - 1))
