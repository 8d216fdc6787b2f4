"""4-bit floats: two e2m1 numbers a byte, the first in the low bits, and a scale for each block.

NVFP4, as TensorRT Model Optimizer exports it: `weight` u8 [out, in / 2], `weight_scale` f8
[out, in / 16], and `weight_scale_2` f32 [] that scales are multiplied by; `input_scale` is of
activations. MXFP4, gpt-oss's experts: `NAME_blocks` u8 [experts, out, in / 32, 16], `NAME_scales`
u8 [experts, out, in / 32] exponents with a bias of 127 (OCP Microscaling specification 1.0).
"""

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from jq.formats.base import Encoding
from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.names import Leaf

_BLOCK = 16  # of NVFP4
_LONG, _NAN = 32, 255  # of MXFP4; an exponent


@method("modelopt", "weight_scale_2", "weight weight_scale input_scale k_scale v_scale")
def read(layer: Layer) -> Mapping[str, Leaf]:
    whole = layer.finite("weight_scale_2", layer.tensors["weight_scale_2"])
    return {"weight": nvfp4_weight(layer, "weight", whole.astype(np.float32))}


def nvfp4_weight(layer: Layer, name: str, factor: np.ndarray) -> Leaf:
    """The weight whose codes are the tensor `name`; scales are multiplied by `factor`."""
    codes, scale = layer.get(name, "u", 2), layer.get("weight_scale", "f", 2)
    if codes.dtype != np.uint8 or scale.dtype != ml_dtypes.float8_e4m3fn or factor.size != 1:
        raise layer.wrong(f"codes are {codes.dtype.name}, scales {scale.dtype.name}")
    if not 0 < factor.item() < np.inf:
        raise layer.wrong("the scale of the tensor is no positive number")
    shape = (len(codes), codes.shape[1] * 2)
    layer.need("weight_scale", (shape[0], math.ceil(shape[1] / _BLOCK)))
    parts: dict[str, np.ndarray] = {
        "codes": codes.view(np.int8),
        "scale": layer.finite("weight_scale", scale).view(np.int8),
        "tensor_scale": factor.reshape(1, 1),
    }
    return layer.stored(Encoding("nvfp4", shape, (1, _BLOCK)), lambda: parts)


@method("mxfp4", "blocks scales", "", joint="_")
def read_stack(layer: Layer) -> Mapping[str, Leaf]:
    blocks, scales = layer.get("blocks", "u", 4), layer.get("scales", "u", 3)
    if blocks.dtype != np.uint8 or scales.dtype != np.uint8:
        raise layer.wrong(f"blocks are {blocks.dtype.name}, scales {scales.dtype.name}")
    experts, out, groups = scales.shape
    layer.need("blocks", (experts, out, groups, _LONG // 2))
    if (scales == _NAN).any():
        raise layer.wrong("scales hold NaN")
    shape = (experts, out, groups * _LONG)
    parts = {"codes": blocks.reshape(experts, out, -1).view(np.int8), "scale": scales.view(np.int8)}
    return {"": layer.stored(Encoding("mxfp4", shape, (1, 1, _LONG)), lambda: parts)}
