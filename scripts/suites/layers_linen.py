"""Layers of Flax Linen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from suites.layers import NO_LAYER, Table, classes
from suites.program import Case, numbers

X, ROWS, IMAGE = (3, 7), (3, 5, 7), (2, 9, 7, 5)
_FP8 = "a stand-in for dot_general, for training in float8"


def _case(name: str, module: Any, *inputs: Any, **call: Any) -> Case:
    variables = module.init(jax.random.key(0), *inputs, **call)

    def fn(weights: Any, *args: Any) -> Any:
        return module.apply(weights, *args, **call)

    return Case("linen", name, fn, inputs, variables, sums=True, layer=True)


def _cell(name: str, cell: Any, x: np.ndarray) -> Case:
    carry = cell.initialize_carry(jax.random.key(1), x.shape)
    return _case(name, cell, carry, x)


def _layers() -> dict[str, Callable[[], Case]]:
    x, rows, image = numbers(*X), numbers(*ROWS), numbers(*IMAGE)
    ids = np.array([[1, 4, 0], [2, 2, 6]])
    plain: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
        "BatchNorm": (lambda: nn.BatchNorm(use_running_average=True), (image,)),
        "Conv": (lambda: nn.Conv(6, (3, 3)), (image,)),
        "Conv strided": (lambda: nn.Conv(6, (3, 2), strides=2, padding="VALID"), (image,)),
        "Conv circular": (lambda: nn.Conv(6, (3, 3), padding="CIRCULAR"), (image,)),
        "Conv depthwise": (lambda: nn.Conv(10, (3, 3), feature_group_count=5), (image,)),
        "ConvLocal": (lambda: nn.ConvLocal(6, (3, 3)), (image,)),
        "ConvTranspose": (lambda: nn.ConvTranspose(6, (3, 3), strides=(2, 2)), (image,)),
        "Dense": (lambda: nn.Dense(5), (rows,)),
        "DenseGeneral": (lambda: nn.DenseGeneral((3, 4), axis=(-2, -1)), (rows,)),
        "Dropout": (lambda: nn.Dropout(0.5, deterministic=True), (x,)),
        "Einsum": (lambda: nn.Einsum((7, 3, 5), "bsd,dhk->bshk"), (rows,)),
        "Embed": (lambda: nn.Embed(11, 7), (ids,)),
        "GroupNorm": (lambda: nn.GroupNorm(3), (numbers(2, 9, 7, 6),)),
        "InstanceNorm": (lambda: nn.InstanceNorm(), (image,)),
        "LayerNorm": (lambda: nn.LayerNorm(), (rows,)),
        "RMSNorm": (lambda: nn.RMSNorm(), (rows,)),
        "MultiHeadAttention": (
            lambda: nn.MultiHeadAttention(3, qkv_features=9, deterministic=True),
            (rows,),
        ),
        "MultiHeadDotProductAttention": (
            lambda: nn.MultiHeadDotProductAttention(3, qkv_features=9, deterministic=True),
            (rows, numbers(3, 4, 7)),
        ),
        "SelfAttention": (lambda: nn.SelfAttention(3, qkv_features=9, deterministic=True), (rows,)),
        "PReLU": (lambda: nn.PReLU(), (x,)),
        "RNN": (lambda: nn.RNN(nn.LSTMCell(5)), (rows,)),
        "Bidirectional": (
            lambda: nn.Bidirectional(nn.RNN(nn.GRUCell(5)), nn.RNN(nn.GRUCell(5))),
            (rows,),
        ),
        "Sequential": (lambda: nn.Sequential([nn.Dense(9), nn.gelu, nn.Dense(5)]), (rows,)),
        "WeightNorm": (lambda: nn.WeightNorm(nn.Dense(5)), (x,)),
    }
    made: dict[str, Callable[[], Case]] = {
        name: lambda n=name, m=make, x=x: _case(n, m(), *x) for name, (make, x) in plain.items()
    }
    made["SpectralNorm"] = lambda: _case(
        "SpectralNorm", nn.SpectralNorm(nn.Dense(5)), x, update_stats=False
    )
    for name in ("GRUCell", "LSTMCell", "MGUCell", "OptimizedLSTMCell", "SimpleCell"):
        made[name] = lambda n=name: _cell(n, getattr(nn, n)(5), x)
    made["ConvLSTMCell"] = lambda: _cell("ConvLSTMCell", nn.ConvLSTMCell(6, (3, 3)), image)
    return made


TABLE = Table(
    _layers(),
    {
        "Module": NO_LAYER,
        "RNNCellBase": NO_LAYER,
        "Fp8DirectDotGeneralOp": _FP8,
        "Fp8DotGeneral": _FP8,
        "Fp8DotGeneralOp": _FP8,
        "Fp8Einsum": _FP8,
        "NANOOFp8DotGeneralOp": _FP8,
    },
    classes(nn, nn.Module),
)
