"""Layers of Equinox: of one sample, so they run under `vmap` where they take a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from equinox import nn

from suites.layers import NO_LAYER, Table, classes
from suites.program import Case, numbers

KEY = jax.random.key(0)


def _case(name: str, make: Callable[[], Any], *inputs: Any, **call: Any) -> Case:
    weights, rest = eqx.partition(eqx.nn.inference_mode(make()), eqx.is_array)

    def fn(held: Any, *args: Any) -> Any:
        return jax.vmap(lambda *x: eqx.combine(held, rest)(*x, **call))(*args)

    return Case("equinox", name, fn, inputs, weights, sums=True, layer=True)


def _stateful(name: str, make: Callable[[], tuple[Any, Any]], x: np.ndarray) -> Case:
    """A layer with a state, which evaluation reads."""
    module, state = make()
    weights, rest = eqx.partition((eqx.nn.inference_mode(module), state), eqx.is_array)

    def fn(held: Any, args: Any) -> Any:
        layer, kept = eqx.combine(held, rest)
        return jax.vmap(lambda one: layer(one, kept)[0], axis_name="batch")(args)

    return Case("equinox", name, fn, (x,), weights, sums=True, layer=True)


def _pools() -> dict[str, Callable[[], Case]]:
    made: dict[str, Callable[[], Case]] = {}
    for rank in (1, 2, 3):
        x = numbers(2, 3, *(9, 7, 5)[:rank])
        for kind in ("AvgPool", "MaxPool"):
            name = f"{kind}{rank}d"
            made[name] = lambda n=name, x=x: _case(n, lambda: getattr(nn, n)(3, 2), x)
        for kind in ("AdaptiveAvgPool", "AdaptiveMaxPool"):
            name = f"{kind}{rank}d"
            made[name] = lambda n=name, x=x, r=rank: _case(
                n, lambda: getattr(nn, n)(3 if r == 1 else (3,) * r), x
            )
        for kind in ("Conv", "ConvTranspose"):
            name = f"{kind}{rank}d"
            made[name] = lambda n=name, x=x: _case(
                n, lambda: getattr(nn, n)(3, 4, 3, stride=2, padding=1, key=KEY), x
            )
    return made


def _layers() -> dict[str, Callable[[], Case]]:
    x, ids = numbers(3, 7), np.array([1, 4, 0])
    plain: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
        "Conv": (lambda: nn.Conv(2, 3, 6, 3, groups=3, key=KEY), (numbers(2, 3, 9, 7),)),
        "ConvTranspose": (lambda: nn.ConvTranspose(2, 3, 6, 3, key=KEY), (numbers(2, 3, 9, 7),)),
        "Dropout": (lambda: nn.Dropout(0.5, inference=True), (x,)),
        "Embedding": (lambda: nn.Embedding(11, 7, key=KEY), (ids,)),
        "GRUCell": (lambda: nn.GRUCell(7, 5, key=KEY), (x, numbers(3, 5))),
        "LSTMCell": (lambda: nn.LSTMCell(7, 5, key=KEY), (x, (numbers(3, 5), numbers(3, 5)))),
        "GroupNorm": (lambda: nn.GroupNorm(3, 6), (numbers(2, 6, 5),)),
        "Identity": (lambda: nn.Identity(), (x,)),
        "Lambda": (lambda: nn.Lambda(jax.nn.gelu), (x,)),
        "LayerNorm": (lambda: nn.LayerNorm(7), (x,)),
        "Linear": (lambda: nn.Linear(7, 5, key=KEY), (x,)),
        "MLP": (lambda: nn.MLP(7, 5, 9, 2, key=KEY), (x,)),
        "MultiheadAttention": (
            lambda: nn.MultiheadAttention(3, 9, key=KEY),
            (numbers(2, 5, 9), numbers(2, 4, 9), numbers(2, 4, 9)),
        ),
        "PReLU": (lambda: nn.PReLU(0.2), (x,)),
        "RMSNorm": (lambda: nn.RMSNorm(7), (x,)),
        "RotaryPositionalEmbedding": (lambda: nn.RotaryPositionalEmbedding(6), (numbers(2, 5, 6),)),
        "Sequential": (
            lambda: nn.Sequential([nn.Linear(7, 9, key=KEY), nn.Lambda(jax.nn.relu)]),
            (x,),
        ),
        "WeightNorm": (lambda: nn.WeightNorm(nn.Linear(7, 5, key=KEY)), (x,)),
    }
    made: dict[str, Callable[[], Case]] = {
        name: lambda n=name, m=make, x=x: _case(n, m, *x) for name, (make, x) in plain.items()
    }
    made["BatchNorm"] = lambda: _stateful(
        "BatchNorm",
        lambda: eqx.nn.make_with_state(nn.BatchNorm)(7, "batch", mode="batch"),
        numbers(3, 7),
    )
    made["SpectralNorm"] = lambda: _stateful(
        "SpectralNorm",
        lambda: eqx.nn.make_with_state(
            lambda: nn.SpectralNorm(nn.Linear(7, 5, key=KEY), "weight", key=KEY)
        )(),
        numbers(3, 7),
    )
    return made | _pools()


TABLE = Table(
    _layers(),
    {
        "AdaptivePool": NO_LAYER,
        "Pool": NO_LAYER,
        "Shared": "what two layers share",
        "StateIndex": NO_LAYER,
        "StatefulLayer": NO_LAYER,
    },
    classes(nn, eqx.Module),
)
