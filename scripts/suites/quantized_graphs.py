"""Graphs that pass a quantized value through drawn ops to a product with a stored weight.

A graph is right where both operands of its product keep the encoding that the model gives them,
nothing is quantized twice, no weight is stored as floats, and the interpreter, XLA and IREE
compute the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable
from jq.planning.decisions import OpPlan
from suites.outcome import RIGHT, WRONG, Outcome

Array = Any
Step = Callable[[Array], Array]
GROUP, INNER = "quantized", 8  # the axis that is summed over: no op changes its length
WEIGHTS = ("int8", "int4", "uint8")


def _pool(x: Array) -> Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 1), (1, 1, 1), "SAME")


def _looped(x: Array) -> Array:
    return jax.lax.fori_loop(0, 2, lambda i, c: jnp.maximum(c, c[:, ::-1]), x)


def _branch(x: Array) -> Array:
    on = x[0, 0, 0] > 0
    return jax.lax.cond(on, lambda y: y[:, ::-1], lambda y: jnp.maximum(y, 0), x)


def _rows(x: Array) -> Array:
    return x * np.exp2(np.arange(x.shape[1]) % 5 - 2.0).astype(np.float32)[:, None]


def _top(x: Array) -> Array:
    """The largest along the tokens, one less than there are of more than three."""
    count = x.shape[1] - (x.shape[1] > 3)
    return jax.lax.top_k(x.swapaxes(1, 2), count)[0].swapaxes(1, 2)


def _times(factor: float) -> Step:
    return lambda x: x * float(factor)


def _over(factor: float) -> Step:
    return lambda x: x / float(factor)


WHOLE: list[Callable[[np.random.Generator], Step]] = [  # of a tensor with one scale
    lambda rng: _pool,
    lambda rng: _looped,
    lambda rng: _branch,
    lambda rng: lambda x: jnp.pad(x, ((0, 0), (1, 0), (0, 0))),
    lambda rng: lambda x: jnp.concatenate([x[:, 1:], x[:, :2]], 1),
    lambda rng: lambda x: jnp.where(jnp.arange(x.shape[1])[:, None] % 2 == 0, x, 0),
    lambda rng: lambda x: x[:, jnp.array([0, 1, 1, 0])],
    lambda rng: lambda x: jax.lax.dynamic_update_slice(x, x[:, -1:], (0, 0, 0)),
    lambda rng: lambda x: x.at[:, jnp.array([2, 0])].set(x[:, :2]),
    lambda rng: lambda x: x.at[:, jnp.array([2, 0])].max(x[:, :2]),
    lambda rng: lambda x: jnp.max(jnp.stack([x, x[:, ::-1]], 2), 2),
    lambda rng: lambda x: jnp.minimum(jnp.maximum(x, 0), 100),
    lambda rng: lambda x: jnp.sort(x, 1),
    lambda rng: _top,
]
ANY: list[Callable[[np.random.Generator], Step]] = [  # of one with a scale for each token, too
    lambda rng: jax.nn.relu,
    lambda rng: lambda x: x[:, ::-1],
    lambda rng: lambda x: x[:, 1:],
    lambda rng: lambda x: x.transpose(1, 0, 2).transpose(1, 0, 2),
    lambda rng: lambda x: x.reshape(-1, INNER).reshape(x.shape),
    lambda rng: _times(2.0 ** rng.integers(-3, 4)),
    lambda rng: _over(2.0 ** rng.integers(-3, 4)),
    lambda rng: jnp.negative,
    lambda rng: lambda x: -jnp.sort(-x, 2),
    lambda rng: lambda x: jax.lax.top_k(x, INNER)[0],
]
LAST: dict[str, list[Step]] = {  # of a tensor with one scale: codes around 0, a scale for each row
    "symmetric": [lambda x: x, jnp.abs, lambda x: _rows(jnp.abs(x))],
    "asymmetric": [lambda x: x, lambda x: _rows(x)],
}


def drawn(seed: int) -> tuple[Callable[[Array, Array], Array], Any]:
    """A function of an input [2, 6, 8] and of a stored weight, and the weight."""
    rng = np.random.default_rng(seed)
    token = rng.random() < 0.25
    kinds = ANY if token else WHOLE + ANY
    steps = [kinds[i](rng) for i in rng.integers(0, len(kinds), rng.integers(1, 6))]
    scheme = "asymmetric" if rng.random() < 0.5 else "symmetric"
    if not token:
        steps.append(LAST[scheme][rng.integers(len(LAST[scheme]))])
    options: dict[str, Any] = {"granularity": "per-token"} if token else {"range": (-2.5, 3.5)}
    weight = rng.standard_normal((INNER, 3)).astype(np.float32)
    plain = jq.Model(lambda p, x: x @ p, weight, (weight.T,))
    name = WEIGHTS[rng.integers(len(WEIGHTS))]
    stored = jq.quantize_weights(plain, dtype=name, weight_num_threshold=0).params

    def graph(w: Array, x: Array) -> Array:
        x = jq.fake_quant(x, scheme=scheme, **options)
        return reduce(lambda y, step: step(y), steps, x) @ w

    return graph, stored


def judge(seeds: Sequence[int]) -> list[Outcome | None]:
    """Compiles the graphs as one program."""
    graphs = [drawn(seed) for seed in seeds]
    x = np.random.default_rng(seeds[0]).standard_normal((2, 6, INNER)).astype(np.float32)

    def forward(weights: list[Array], x: Array) -> list[Array]:
        return [graph(w, x) for (graph, _), w in zip(graphs, weights, strict=True)]

    model = jq.Model(forward, [w for _, w in graphs], (x,))
    levels = jq.rewrite(model, pipeline="int8-dynamic")
    program = levels["integer"]
    ours = [np.asarray(y) for y in jq.compile(model, pipeline="int8-dynamic")(x)]
    others = {
        "XLA": XlaExecutable(program, strict=True)(x),
        "the interpreter": interpret(program, x),
    }
    reasons = [_planned(op) for op in jq.plan(model, pipeline="int8-dynamic").ops if op.operands]
    if any(a.dtype == np.float32 and a.size >= 3 * INNER for a in program.weights.values()):
        reasons = ["a weight is stored as floats"] * len(seeds)
    for name, theirs in others.items():
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            reasons[i] = reasons[i] or ("" if np.array_equal(a, b) else f"{name} gives other bits")
    return [
        Outcome(GROUP, str(seed), WRONG if reason else RIGHT, reason)
        for seed, reason in zip(seeds, reasons, strict=True)
    ]


def _planned(op: OpPlan) -> str:
    """The fault in the plan of a product, which has nothing to quantize; empty if there is none."""
    kinds = [(p.kind, p.stored) for _, p in sorted(op.operands.items())]
    right = op.decision == "integer" and kinds == [("given", False), ("weight", True)]
    return "" if right else f"{op.decision} {kinds} {op.reason}"
