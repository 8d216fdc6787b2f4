"""Quantized matrices that no program wrote: each is refused, by one line that names the module."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jq.base.errors import UserError
from jq.formats.floats import NORMAL_QUANTILES
from jq.formats.tensor import QuantizedTensor
from jq.frontends.checkpoints.method import unpacked_tensors

STATE = "weight.quant_state.bitsandbytes__nf4"
F8 = ml_dtypes.float8_e4m3fn


def words(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


def half(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float16)


def single(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def state(**changed: Any) -> np.ndarray:
    sizes = {"shape": [8, 64], "blocksize": 64, "nested_blocksize": 4, "nested_offset": 0.5}
    return np.frombuffer(json.dumps(sizes | changed).encode(), np.uint8)


# By name: the config, and the tensors of a matrix of 8 rows (32 for GPTQ and AWQ) and 64 columns.
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, np.ndarray]]] = {
    "packed": (
        {"quant_method": "compressed-tensors"},
        {
            "weight_packed": words(8, 8),
            "weight_scale": half(8, 2),
            "weight_shape": np.array([8, 64]),
            "weight_zero_point": words(1, 2),
        },
    ),
    "nvfp4": (
        {"quant_method": "compressed-tensors"},
        {
            "weight_packed": np.zeros((8, 32), np.uint8),
            "weight_scale": np.ones((8, 4), F8),
            "weight_global_scale": single(2),
        },
    ),
    "gptq": (
        {"quant_method": "gptq"},
        {"qweight": words(8, 32), "qzeros": words(2, 4), "scales": half(2, 32)},
    ),
    "awq": (
        {"quant_method": "awq"},
        {"qweight": words(64, 4), "qzeros": words(2, 4), "scales": half(2, 32)},
    ),
    "mlx": (
        {"quant_method": "mlx"},
        {"weight": words(8, 8), "scales": half(8, 1), "biases": half(8, 1)},
    ),
    "mxfp4": (
        {"quant_method": "mlx", "mode": "mxfp4"},
        {"weight": words(8, 8), "scales": np.full((8, 2), 127, np.uint8)},
    ),
    "nf4": (
        {"quant_method": "bitsandbytes"},
        {
            "weight": np.zeros((256, 1), np.uint8),
            "weight.absmax": np.ones(8, np.uint8),
            "weight.quant_map": np.array(NORMAL_QUANTILES, np.float32),
            "weight.nested_quant_map": np.zeros(256, np.float32),
            "weight.nested_absmax": single(1, 1),
            STATE: state(),
        },
    ),
    "int8": (
        {"quant_method": "bitsandbytes"},
        {"weight": np.zeros((8, 64), np.int8), "SCB": np.ones(8)},
    ),
    "fp8": (
        {"quant_method": "fp8", "weight_block_size": [4, 32]},
        {"weight": np.ones((8, 64), F8), "weight_scale_inv": np.ones((2, 2), np.float32)},
    ),
    "fp8 in blocks": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"block_structure": [4, 32]}}},
        },
        {"weight": np.ones((8, 64), F8), "weight_scale": np.ones((2, 2), np.float32)},
    ),
}
CHANGES: list[tuple[str, dict[str, Any]]] = [
    *(("packed", {"weight_shape": np.array(s)}) for s in ([8], [8, 64, 2], [-8, 64], [8, 0])),
    ("packed", {"weight_packed": words(8, 0), "weight_shape": np.array([8, 0])}),
    ("packed", {"weight_scale": np.ones((8, 2), np.complex64)}),
    ("packed", {"weight_zero_point": np.full((8, 2), 100, np.int8)}),
    ("packed", {"weight_zero_point": words(3, 2)}),
    *(("packed", {"sparsity_config": v}) for v in ("x", {"format": "sparse-24-bitmask"})),
    ("packed", {"weight_scale": half(8, 3), "weight_zero_point": words(1, 3)}),
    ("packed", {"weight_scale": np.ones((8, 2))}),
    *(("nvfp4", {"weight_global_scale": single(v)}) for v in (0, -1, 1e-45, np.nan)),
    ("nvfp4", {"weight_global_scale": np.array([1e300])}),
    ("nvfp4", {"weight_scale": half(8, 4)}),
    ("nvfp4", {"weight_packed": np.zeros((8, 12), np.uint8), "weight_scale": np.ones((8, 1), F8)}),
    # The zero points of 2 or 3 bits do not fill their words.
    *(
        ("gptq", {"qweight": words(24, n), "qzeros": words(2, m), "scales": half(2, n)})
        for n, m in ((12, 1), (43, 4), (31, 2), (0, 0), (8, 0), (5, 1))
    ),
    *(("gptq", {"checkpoint_format": kind}) for kind in ([1], {"a": 1}, "other")),
    ("awq", {"qweight": words(64, 0), "qzeros": words(2, 0), "scales": half(2, 0)}),
    *(("awq", change) for change in ({"version": "gemv"}, {"qweight": words(64, 5)})),
    ("awq", {"qzeros": None}),
    *(("mlx", {"bits": bits}) for bits in ([1], {}, 4.0, True, None)),
    *(("mlx", {"mode": mode}) for mode in ([1], {}, None)),
    ("mlx", {"weight": words(8, 0), "scales": half(8, 0), "biases": half(8, 0)}),
    ("mxfp4", {"scales": np.full((8, 2), 255, np.uint8)}),
    ("mxfp4", {"weight": words(8, 5), "scales": np.ones((8, 1), np.uint8)}),
    *(("nf4", {STATE: state(nested_offset=v)}) for v in (10**400, 1e300, float("nan"))),
    ("nf4", {STATE: state(nested_blocksize=1 << 50), "weight.nested_absmax": single(1, 1)}),
    ("nf4", {"weight.nested_absmax": single(np.inf, 1)}),
    ("nf4", {"weight.nested_quant_map": np.full(256, np.nan)}),
    *(("nf4", {STATE: change}) for change in (state(blocksize=48), state(shape=[8]))),
    ("nf4", {STATE: None, STATE.replace("nf4", "fp4"): state()}),
    ("int8", {"SCB": np.full(8, 1e300)}),
    ("fp8", {"weight": half(8, 64)}),
    ("fp8", {"weight_scale_inv": np.ones((2, 2))}),
    *(("fp8", {"weight_block_size": size}) for size in (None, [4], [0, 32])),
    ("fp8 in blocks", {"config_groups": {"group_0": {"weights": {}}}}),
]


def read(layout: str, changed: dict[str, Any]) -> QuantizedTensor:
    config, tensors = LAYOUTS[layout]
    parts = tensors | {n: v for n, v in changed.items() if isinstance(v, np.ndarray)}
    parts = {n: v for n, v in parts.items() if n not in changed or changed[n] is not None}
    named = {f"model.up.{name}": array for name, array in parts.items()}
    settings = config | {n: v for n, v in changed.items() if not isinstance(v, np.ndarray)}
    weight = unpacked_tensors(settings, named, "config.json")["model.up.weight"]
    assert isinstance(weight, QuantizedTensor)
    return weight


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_one_is_read(layout: str) -> None:
    assert np.isfinite(read(layout, {}).decode()).all()


@pytest.mark.parametrize(("layout", "changed"), CHANGES)
def test_a_lie_is_refused(layout: str, changed: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"the quantized weight of model\.up cannot be read: "):
        read(layout, changed).decode()


def test_a_large_block_of_factors_takes_no_memory() -> None:
    """The block may be larger than the matrix, and says nothing about how much is read."""
    one = {STATE: state(nested_blocksize=1 << 50), "weight.nested_absmax": single(1)}
    assert read("nf4", one).decode().shape == (8, 64)
