"""Floats of 8 and 4 bits with scales.

- `fp8`: `weight` f8 [out, in] and `weight_scale_inv` [out / rows, in / columns], the name that
  DeepSeek's files have for the factor that a code is multiplied by; or `weight_scale`, a number,
  [1], [out] or [out, 1]. Source: `transformers`, `finegrained_fp8.py` and `fbgemm_fp8.py`.
- `modelopt`, NVFP4, two e2m1 numbers a byte, the first in the low bits: `weight` u8 [out, in / 2],
  `weight_scale` f8 [out, in / 16], and `weight_scale_2` f32 [] that scales are multiplied by.
- `mxfp4`, gpt-oss's experts: `NAME_blocks` u8 [experts, out, in / 32, 16], `NAME_scales` u8
  [experts, out, in / 32], exponents with a bias of 127 (OCP Microscaling specification 1.0)."""

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from jq.formats import Encoding, Leaf
from jq.frontends.checkpoints.method import Layer, method

NAN = 255  # as an exponent of 8 bits
_BLOCK, _LONG = 16, 32  # of NVFP4, of MXFP4


@method("fbgemm_fp8", "weight_scale", "weight input_scale_ub")
@method("fp8", "weight_scale_inv weight_scale", "weight input_scale activation_scale")
def read_float8(layer: Layer) -> Mapping[str, Leaf]:
    inverse = "weight_scale_inv" in layer.tensors
    return {"weight": float8_weight(layer, "weight_scale_inv" if inverse else "weight_scale")}


@method("modelopt", "weight_scale_2", "weight weight_scale input_scale k_scale v_scale")
def read_nvfp4(layer: Layer) -> Mapping[str, Leaf]:
    whole = layer.finite("weight_scale_2", layer.tensors["weight_scale_2"])
    return {"weight": nvfp4_weight(layer, "weight", whole.astype(np.float32))}


@method("mxfp4", "blocks scales", "", joint="_")
def read_mxfp4(layer: Layer) -> Mapping[str, Leaf]:
    (scales, blocks), _ = layer.all(
        scales="byte experts out groups", blocks="byte experts out groups half"
    )
    layer.get("blocks", "byte experts out groups half", half=_LONG // 2)
    if (scales == NAN).any():
        raise layer.wrong("scales hold NaN")
    experts, out, groups = scales.shape
    shape = (experts, out, groups * _LONG)
    parts = {"codes": blocks.reshape(experts, out, -1).view(np.int8), "scale": scales.view(np.int8)}
    return {"": layer.stored(Encoding("mxfp4", shape, (1, 1, _LONG)), lambda: parts)}


def nvfp4_weight(layer: Layer, name: str, factor: np.ndarray) -> Leaf:
    """The weight whose codes are the tensor `name`; scales are multiplied by `factor`."""
    codes = layer.get(name, "byte out half")
    shape = (len(codes), codes.shape[1] * 2)
    columns = math.ceil(shape[1] / _BLOCK)
    scale = layer.get("weight_scale", "scale out groups", out=shape[0], groups=columns)
    if scale.dtype != ml_dtypes.float8_e4m3fn or factor.size != 1:
        raise layer.wrong(f"scales are {scale.dtype.name}")
    if not 0 < factor.item() < np.inf:
        raise layer.wrong("the scale of the tensor is no positive number")
    parts: dict[str, np.ndarray] = {
        "codes": codes.view(np.int8),
        "scale": scale.view(np.int8),
        "tensor_scale": factor.reshape(1, 1),
    }
    return layer.stored(Encoding("nvfp4", shape, (1, _BLOCK)), lambda: parts)


def float8_weight(layer: Layer, name: str) -> Leaf:
    """The weight whose factors are the tensor `name`."""
    codes = layer.get("weight", "float out in")
    if codes.dtype not in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        raise layer.wrong(f"weight is {codes.dtype.name}")
    scale = layer.finite(name, layer.tensors[name])
    if scale.dtype.name not in ("float16", "bfloat16", "float32"):
        raise layer.wrong(f"{name} is {scale.dtype.name}")
    grid = scale.reshape(-1, 1) if scale.ndim < 2 else scale
    block = _block(layer, name, codes.shape, grid.shape)
    encoding = Encoding(codes.dtype.name, codes.shape, block, scale_type=scale.dtype.name)
    if encoding.grid != grid.shape:
        raise layer.wrong(f"{name} has shape {list(scale.shape)} for {list(codes.shape)}")
    parts = {"codes": codes.view(np.int8), "scale": np.ascontiguousarray(grid)}
    return layer.stored(encoding, lambda: parts)


def _block(
    layer: Layer, name: str, shape: tuple[int, ...], grid: tuple[int, ...]
) -> tuple[int, int]:
    """Rows and columns that share a factor; 0 for all."""
    if grid in ((1, 1), (shape[0], 1)):
        return int(grid != (1, 1)), 0
    sizes = layer.config.get("weight_block_size") or _block_of_groups(layer.config)
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(type(n) is int for n in sizes):
        raise layer.wrong(f"{name} is {list(grid)}, and the config names no weight_block_size")
    if min(sizes) < 1:
        raise layer.wrong(f"blocks of {sizes}")
    return sizes[0], sizes[1]


def _block_of_groups(config: Mapping[str, object]) -> object:
    """`block_structure` of the first group of compressed-tensors that has one."""
    groups = config.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and weights.get("block_structure") is not None:
            found: object = weights["block_structure"]
            return found
    return None
