"""bitsandbytes: nf4 in blocks of the flat weight, and int8 with one scale for each row.

4 bits: `weight` u8 [out * in / 2, 1], the first of two codes in the high half; `weight.absmax`, the
largest magnitude of each block, f32, or u8 codes of a table (`weight.nested_quant_map`) that are
multiplied by `weight.nested_absmax` for each 256 of them and added to `nested_offset`;
`weight.quant_state.bitsandbytes__nf4` u8 is JSON of the shape and the sizes of blocks.
8 bits: `weight` i8 [out, in], `SCB` f32 [out], the largest magnitude of a row, for which 127
stands. Sources: `QuantState` of `bitsandbytes/functional.py`; Dettmers et al. 2022 and 2023.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jq.formats.base import Encoding
from jq.formats.floats import NORMAL_QUANTILES
from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.names import Leaf

_STATE = "weight.quant_state.bitsandbytes__"
_MARKS = f"SCB {_STATE}nf4 {_STATE}fp4"
_OTHERS = (
    "weight weight_format weight.absmax weight.quant_map weight.nested_absmax"
    " weight.nested_quant_map"
)
_LARGEST = float(np.finfo(np.float32).max)
_ROUNDED = 1e-6  # of the table, which files hold in float32


@method("bitsandbytes", _MARKS, _OTHERS)
def read(layer: Layer) -> Mapping[str, Leaf]:
    return {"weight": _int8(layer) if "SCB" in layer.tensors else _nf4(layer)}


def _int8(layer: Layer) -> Leaf:
    codes, most = layer.get("weight", "i", 2), layer.get("SCB", "f", 1)
    if codes.dtype != np.int8 or most.shape != codes.shape[:1]:
        raise layer.wrong(f"weight is {codes.dtype.name}{list(codes.shape)}, SCB {most.shape}")
    scale = layer.finite("SCB", most).astype(np.float32)[:, None] / np.float32(127)
    full = (("divisor", "absmax/127.5"),)  # every code may occur
    encoding = Encoding("int8", codes.shape, (1, 0), options=full)
    return layer.stored(encoding, lambda: {"codes": codes, "scale": scale})


def _nf4(layer: Layer) -> Leaf:
    state = _state(layer)
    shape = _sizes(layer, "shape", state.get("shape"), 2)
    (size,) = _sizes(layer, "blocksize", [state.get("blocksize")], 1)
    count, columns = math.prod(shape), shape[1]
    if columns % size:
        raise layer.wrong(f"blocks of {size} do not divide rows of {columns}")
    table = layer.get("weight.quant_map", "f", 1)
    if table.shape != (16,) or not np.allclose(table, NORMAL_QUANTILES, rtol=0, atol=_ROUNDED):
        raise layer.wrong("its table is not that of nf4")
    packed, grid = layer.get("weight", "u", 2), (shape[0], columns // size)
    if packed.dtype != np.uint8 or packed.size * 2 != count or count % 2:
        raise layer.wrong(f"weight has {packed.size} bytes for {list(shape)}")
    absmax = layer.get("weight.absmax", "fu", 1)
    if absmax.size != math.prod(grid):
        raise layer.wrong(f"weight.absmax has {absmax.size} numbers for {math.prod(grid)} blocks")
    scale = _nested(layer, state, absmax) if absmax.dtype == np.uint8 else absmax
    scale = layer.finite("weight.absmax", scale.astype(np.float32)).reshape(grid)

    def make() -> Mapping[str, np.ndarray]:
        bytes_ = packed.reshape(shape[0], -1)
        return {"codes": (bytes_ >> 4 | bytes_ << 4).view(np.int8), "scale": scale}

    return layer.stored(Encoding("nf4", shape, (1, size)), make)


def _state(layer: Layer) -> dict[str, Any]:
    if f"{_STATE}nf4" not in layer.tensors:
        raise layer.wrong("it is fp4 of bitsandbytes, whose table is not known; nf4 is")
    try:
        found = json.loads(bytes(layer.get(f"{_STATE}nf4", "u", 1)))
    except (ValueError, RecursionError) as error:
        raise layer.wrong(f"its state is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise layer.wrong("its state is no JSON object")
    return found


def _nested(layer: Layer, state: Mapping[str, Any], codes: np.ndarray) -> np.ndarray:
    """Largest magnitudes that are quantized themselves."""
    table = layer.get("weight.nested_quant_map", "f", 1)
    (size,) = _sizes(layer, "nested_blocksize", [state.get("nested_blocksize")], 1)
    most, offset = layer.get("weight.nested_absmax", "f", 1), state.get("nested_offset", 0.0)
    known = type(offset) in (int, float) and abs(offset) <= _LARGEST  # NaN is not
    if table.shape != (256,) or not known:
        raise layer.wrong(f"a table of {table.size}, offset {offset!r:.40}")
    if most.size != math.ceil(codes.size / size):
        raise layer.wrong(f"weight.nested_absmax has {most.size} numbers")
    layer.finite("weight.nested_quant_map", table)
    most = layer.finite("weight.nested_absmax", most).astype(np.float32)
    factors = np.repeat(most, min(size, codes.size))[: codes.size]
    with np.errstate(over="ignore"):  # the sums are checked
        return table.astype(np.float32)[codes] * factors + np.float32(offset)


def _sizes(layer: Layer, name: str, values: Any, count: int) -> tuple[int, ...]:
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(type(n) is int and n > 0 for n in values)
    ):
        raise layer.wrong(f"{name} is {values!r:.40}")
    return tuple(values)
