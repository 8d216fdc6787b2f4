"""8-bit floats with a scale for the tensor, each row, or each block of rows and columns.

`weight` f8 [out, in] and `weight_scale_inv` [out / rows, in / columns], the name that DeepSeek's
files have for the factor that a code is multiplied by; or `weight_scale`, a number, [1], [out] or
[out, 1]. Source: `transformers`, `integrations/finegrained_fp8.py` and `fbgemm_fp8.py`.
"""

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from jq.formats.base import Encoding
from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.names import Leaf

_FORMATS = {
    np.dtype(ml_dtypes.float8_e4m3fn): "float8_e4m3fn",
    np.dtype(ml_dtypes.float8_e5m2): "float8_e5m2",
}


@method("fp8", "weight_scale_inv weight_scale", "weight input_scale activation_scale")
def read(layer: Layer) -> Mapping[str, Leaf]:
    return {"weight": float8_weight(layer, _scale_name(layer))}


@method("fbgemm_fp8", "weight_scale", "weight input_scale_ub")
def read_rows(layer: Layer) -> Mapping[str, Leaf]:
    return {"weight": float8_weight(layer, "weight_scale")}


def _scale_name(layer: Layer) -> str:
    return "weight_scale_inv" if "weight_scale_inv" in layer.tensors else "weight_scale"


def float8_weight(layer: Layer, name: str) -> Leaf:
    """The weight whose factors are the tensor `name`."""
    codes = layer.get("weight", "f", 2)
    if codes.dtype not in _FORMATS:
        raise layer.wrong(f"weight is {codes.dtype.name}")
    scale = layer.finite(name, layer.tensors[name])
    if scale.dtype.name not in ("float16", "bfloat16", "float32"):
        raise layer.wrong(f"{name} is {scale.dtype.name}")
    grid = scale.reshape(-1, 1) if scale.ndim < 2 else scale
    block = _block(layer, name, codes.shape, grid.shape)
    encoding = Encoding(_FORMATS[codes.dtype], codes.shape, block, scale_type=scale.dtype.name)
    if encoding.grid != grid.shape:
        raise layer.wrong(f"{name} has shape {list(scale.shape)} for {list(codes.shape)}")
    parts = {"codes": codes.view(np.int8), "scale": np.ascontiguousarray(grid)}
    return layer.stored(encoding, lambda: parts)


def _block(
    layer: Layer, name: str, shape: tuple[int, ...], grid: tuple[int, ...]
) -> tuple[int, int]:
    """Rows and columns that share a factor; 0 for all."""
    out = shape[0]
    if grid == (1, 1):
        return 0, 0
    if grid == (out, 1):
        return 1, 0
    given = layer.config.get("weight_block_size")
    sizes = given if given is not None else _block_of_groups(layer.config)
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
        found = weights.get("block_structure") if isinstance(weights, dict) else None
        if found is not None:
            return found
    return None
