"""move-transposes on drawn functions: the same values, and never more transposes or bytes.

Drawn are chains of every op that has other orders, with transposes anywhere between, values that
are read twice, several results, and a function that computes from weights alone.
"""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings

import jq
from jq.frontends.source import trace
from jq.ir import Program, dtype_of, kind_of, shape_of
from jq.passes.prepare.transposes.move_transposes import MoveTransposes
from tests.support.programs import evaluated

Axis = Any


def moved(program: Program) -> tuple[int, int]:
    """Transposes of what inputs reach, and their bytes."""
    weights = list(program.body.arguments)[len(program.inputs) :]
    found = [op for op in program.walk() if kind_of(op) == "stablehlo.transpose"]
    values = [op.operation.operands[0] for op in found if op.operation.operands[0] not in weights]
    return len(values), sum(math.prod(shape_of(v)) * dtype_of(v).itemsize for v in values)


def convolved(x: Any, w: Any) -> Any:
    """Convolution of [B, C, H, W], computed on channels last."""
    y = jax.lax.conv_general_dilated(
        x.transpose(0, 2, 3, 1), w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return y.transpose(0, 3, 1, 2)


def pooled(x: Any, w: Any) -> Any:
    window, strides, pads = (1, 1, 2, 2), (1, 1, 1, 2), ((0, 0), (0, 0), (0, 1), (1, 0))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, pads)


def updated(x: Any, w: Any) -> Any:
    i = jnp.argmax(x[0, :, 0, 0])
    return jax.lax.dynamic_update_slice(x, -x[:, :, :1, :1], (0, 0, i % 2, i % 3))


STEPS = {
    "conv": convolved,
    "bias": lambda x, w: x + w[0, 0, 0][None, :, None, None],
    "scale": lambda x, w: x * jnp.tanh(w[1, 0, 0])[:, None, None],
    "relu": lambda x, w: jnp.maximum(x, 0),
    "clip": lambda x, w: jnp.where(x > 0.5, jnp.clip(x, 0, 2), x.astype(jnp.bfloat16)),
    "pool": pooled,
    "pad": lambda x, w: jnp.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=3),
    "slice": lambda x, w: x[:, :, x.shape[2] // 3 :, ::2],
    "flip": lambda x, w: jnp.flip(x, (2,)),
    "join": lambda x, w: jnp.concatenate([x, 2 * x], 2),
    "at": lambda x, w: jax.lax.dynamic_slice_in_dim(x, jnp.argmax(x) % 2, -(-x.shape[2] // 2), 2),
    "update": updated,
    "squeeze": lambda x, w: x * x.mean((2, 3), keepdims=True),
    "flat": lambda x, w: (x.reshape(*x.shape[:2], -1) + 1).reshape(x.shape),
    "norm": lambda x, w: x - x.transpose(0, 2, 3, 1).max(-1)[:, None],
    "swap": lambda x, w: x.transpose(0, 1, 3, 2),
    "first": lambda x, w: x.transpose(1, 0, 2, 3).transpose(1, 0, 3, 2),
}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=7), st.data())
def test_drawn(names: list[str], data: st.DataObject) -> None:
    again = data.draw(st.integers(0, len(names)), "added to what follows")
    early = data.draw(st.booleans(), "a result on the way")

    def fn(p: Any, x: Any) -> Any:
        kept = results = None
        for i, name in enumerate(names):
            x = STEPS[name](x, p["w"])
            if i == again:
                kept = x
            if kept is not None and x.shape == kept.shape:
                x = x + kept
            results = x if early and i == 1 else results
        return x.transpose(0, 2, 3, 1), results

    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 3, 4, 4)).astype(np.float32) / 4
    x = rng.standard_normal((2, 4, 8, 9)).astype(np.float32)
    program = trace(jq.Model(fn, {"w": w}, (x,))).program.clone()
    before, cost = evaluated(program, x), moved(program)
    MoveTransposes().run(program, None)  # type: ignore[arg-type]
    program.verify()
    after = moved(program)
    assert after[0] <= cost[0] and after[1] <= cost[1]
    for a, b in zip(before, evaluated(program, x), strict=True):
        scale = max(1.0, float(np.abs(a).max()))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * scale)
