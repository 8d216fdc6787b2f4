"""Layers of Flax NNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from suites.layers import NO_LAYER, Table, classes
from suites.program import Case, numbers

X, ROWS, IMAGE = (3, 7), (3, 5, 7), (2, 9, 7, 5)


def _case(name: str, make: Callable[[nnx.Rngs], Any], *inputs: Any, **call: Any) -> Case:
    module = make(nnx.Rngs(0))
    if hasattr(module, "eval"):
        module.eval()
    graph, state = nnx.split(module)

    def fn(weights: Any, *args: Any) -> Any:
        return nnx.merge(graph, weights)(*args, **call)

    return Case("nnx", name, fn, inputs, state, sums=True, layer=True)


def _rotary() -> dict[str, tuple[Callable[[nnx.Rngs], Any], Any]]:
    """Rotary positions, which Flax has for JAX 0.11 and newer."""
    if not hasattr(nnx, "RoPE"):
        return {}
    return {"RoPE": (lambda r: nnx.RoPE(embedding_size=8, max_seq_len=16), numbers(2, 5, 3, 8))}


def _cell(name: str, make: Callable[[nnx.Rngs], Any]) -> Case:
    carry = make(nnx.Rngs(0)).initialize_carry(X, nnx.Rngs(1))
    return _case(name, make, carry, numbers(*X))


def _layers() -> dict[str, Callable[[], Case]]:
    x, rows, image, ids = (
        numbers(*X),
        numbers(*ROWS),
        numbers(*IMAGE),
        np.array([[1, 4, 0], [2, 2, 6]]),
    )
    cells = {n: getattr(nnx, n) for n in ("GRUCell", "LSTMCell", "OptimizedLSTMCell", "SimpleCell")}

    plain: dict[str, tuple[Callable[[nnx.Rngs], Any], Any]] = {
        "BatchNorm": (lambda r: nnx.BatchNorm(5, use_running_average=True, rngs=r), image),
        "Conv": (lambda r: nnx.Conv(5, 6, (3, 3), rngs=r), image),
        "Conv strided": (
            lambda r: nnx.Conv(5, 6, (3, 2), strides=2, padding="VALID", rngs=r),
            image,
        ),
        "Conv dilated": (lambda r: nnx.Conv(5, 6, (3, 3), kernel_dilation=2, rngs=r), image),
        "Conv depthwise": (lambda r: nnx.Conv(5, 5, (3, 3), feature_group_count=5, rngs=r), image),
        "Conv causal": (lambda r: nnx.Conv(7, 6, 3, padding="CAUSAL", rngs=r), rows),
        "ConvTranspose": (lambda r: nnx.ConvTranspose(5, 6, (3, 3), strides=2, rngs=r), image),
        "Dropout": (lambda r: nnx.Dropout(0.5, rngs=r), x),
        "Einsum": (lambda r: nnx.Einsum("bsd,dhk->bshk", (7, 3, 5), (3, 5), rngs=r), rows),
        "Embed": (lambda r: nnx.Embed(11, 7, rngs=r), ids),
        **_rotary(),
        "GroupNorm": (lambda r: nnx.GroupNorm(6, num_groups=3, rngs=r), numbers(2, 9, 7, 6)),
        "InstanceNorm": (lambda r: nnx.InstanceNorm(5, rngs=r), image),
        "LayerNorm": (lambda r: nnx.LayerNorm(7, rngs=r), rows),
        "Linear": (lambda r: nnx.Linear(7, 5, rngs=r), rows),
        "Linear bfloat16": (lambda r: nnx.Linear(7, 5, dtype=jnp.bfloat16, rngs=r), rows),
        "LinearGeneral": (lambda r: nnx.LinearGeneral((5, 7), (3, 4), axis=(-2, -1), rngs=r), rows),
        "LoRA": (lambda r: nnx.LoRA(7, 2, 5, rngs=r), x),
        "LoRALinear": (lambda r: nnx.LoRALinear(7, 5, lora_rank=2, rngs=r), x),
        "MultiHeadAttention": (
            lambda r: nnx.MultiHeadAttention(3, 7, qkv_features=9, decode=False, rngs=r),
            rows,
        ),
        "PReLU": (lambda r: nnx.PReLU(), x),
        "RMSNorm": (lambda r: nnx.RMSNorm(7, rngs=r), rows),
        "RNN": (lambda r: nnx.RNN(nnx.LSTMCell(7, 5, rngs=r)), rows),
        "RNN reversed": (lambda r: nnx.RNN(nnx.GRUCell(7, 5, rngs=r), reverse=True), rows),
        "Bidirectional": (
            lambda r: nnx.Bidirectional(
                nnx.RNN(nnx.GRUCell(7, 5, rngs=r)), nnx.RNN(nnx.GRUCell(7, 5, rngs=r)), rngs=r
            ),
            rows,
        ),
        "Sequential": (
            lambda r: nnx.Sequential(nnx.Linear(7, 9, rngs=r), nnx.gelu, nnx.Linear(9, 5, rngs=r)),
            rows,
        ),
        "SpectralNorm": (lambda r: nnx.SpectralNorm(nnx.Linear(7, 5, rngs=r), rngs=r), x),
        "WeightNorm": (lambda r: nnx.WeightNorm(nnx.Linear(7, 5, rngs=r), rngs=r), x),
    }
    calls = {"SpectralNorm": {"update_stats": False}}
    made: dict[str, Callable[[], Case]] = {
        name: lambda n=name, m=make, x=x: _case(n, m, x, **calls.get(n, {}))
        for name, (make, x) in plain.items()
    }
    for name, cell in cells.items():
        made[name] = lambda n=name, c=cell: _cell(n, lambda r: c(7, 5, rngs=r))
    return made


TABLE = Table(
    _layers(),
    {"Module": NO_LAYER, "RNNCellBase": NO_LAYER, "Dict": "a container", "List": "a container"},
    classes(nnx, nnx.Module),
)
