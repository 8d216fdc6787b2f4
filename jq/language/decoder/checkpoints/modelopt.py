"""TensorRT Model Optimizer: NVFP4, two e2m1 numbers a byte with a scale f8 for each 16 of a row.

`weight` u8 [out, in / 2], `weight_scale` f8 [out, in / 16], and `weight_scale_2` f32 [] that scales
are multiplied by; `input_scale` is of activations. Source: its export of checkpoints.
"""

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from jq.formats.base import Encoding
from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.names import Leaf

_BLOCK = 16


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
