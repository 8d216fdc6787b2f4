"""The samplers of `jax.random`, with a key as input: the cases of `scripts/suite.py samplers`.

Integers and booleans have the bits of XLA. Floats come from the same bits of the generator by
functions whose last places differ, so that a sample may be off by rounding: `PLACES` last places of
its own type and size, or of the size of the largest one where a sum may cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import random

import jq
from jq.base.errors import UserError

PLACES = 128  # last places: logarithms and roots of differences from 1
SHAPES = ((), (3,), (2, 5))
Sampler = Callable[[Any, tuple[int, ...]], Any]


def _rbg(key: Any) -> Any:
    """A key of XLA's own generator (`rng_bit_generator`)."""
    return random.wrap_key_data(jnp.concatenate([key, key]), impl="rbg")


SAMPLERS: dict[str, Sampler] = {
    "ball": lambda k, s: random.ball(k, 3, shape=s),
    "bernoulli": lambda k, s: random.bernoulli(k, 0.3, s),
    "beta": lambda k, s: random.beta(k, 0.5, 2.0, s),
    "binomial": lambda k, s: random.binomial(k, 20, 0.3, s),
    "bits": lambda k, s: random.bits(k, s),
    "bits of bytes": lambda k, s: random.bits(k, s, np.uint8),
    "categorical": lambda k, s: random.categorical(k, np.log([0.2, 0.3, 0.5]), shape=s),
    "cauchy": lambda k, s: random.cauchy(k, s),
    "chisquare": lambda k, s: random.chisquare(k, 3.0, shape=s),
    "choice": lambda k, s: random.choice(k, 50, s),
    "choice without replacement": lambda k, s: random.choice(k, 50, s, replace=False),
    "dirichlet": lambda k, s: random.dirichlet(k, np.array([0.5, 1, 3]), s),
    "double_sided_maxwell": lambda k, s: random.double_sided_maxwell(k, 0.0, 1.0, s),
    "exponential": lambda k, s: random.exponential(k, s),
    "f": lambda k, s: random.f(k, 3.0, 5.0, s),
    "fold_in": lambda k, s: random.normal(random.fold_in(k, 7), s),
    "gamma": lambda k, s: random.gamma(k, 0.5, s),
    "gamma of several": lambda k, s: random.gamma(k, np.array([0.1, 1.0, 7.0]), (*s, 3)),
    "generalized_normal": lambda k, s: random.generalized_normal(k, 1.5, s),
    "geometric": lambda k, s: random.geometric(k, 0.2, s),
    "gumbel": lambda k, s: random.gumbel(k, s),
    "laplace": lambda k, s: random.laplace(k, s),
    "loggamma": lambda k, s: random.loggamma(k, 0.5, s),
    "logistic": lambda k, s: random.logistic(k, s),
    "lognormal": lambda k, s: random.lognormal(k, 1.0, s),
    "maxwell": lambda k, s: random.maxwell(k, s),
    "multinomial": lambda k, s: random.multinomial(
        k, np.float32(20), np.array([0.2, 0.3, 0.5]), shape=(*s, 3)
    ),
    "multivariate_normal": lambda k, s: random.multivariate_normal(
        k, np.zeros(2, np.float32), np.array([[2.0, 1.0], [1.0, 3.0]]), s
    ),
    "normal": lambda k, s: random.normal(k, s),
    "normal of typed keys": lambda k, s: random.normal(random.wrap_key_data(k), s),
    "normal in bfloat16": lambda k, s: random.normal(k, s, jnp.bfloat16),
    "normal in float16": lambda k, s: random.normal(k, s, np.float16),
    "orthogonal": lambda k, s: random.orthogonal(k, 3, s),
    "pareto": lambda k, s: random.pareto(k, 2.0, s),
    "permutation": lambda k, s: random.permutation(k, int(np.prod(s)) + 7),
    "poisson": lambda k, s: random.poisson(k, 2.0, s),
    "poisson of a large rate": lambda k, s: random.poisson(k, 200.0, s),
    "rademacher": lambda k, s: random.rademacher(k, s),
    "randint": lambda k, s: random.randint(k, s, -3, 1000),
    "randint of bytes": lambda k, s: random.randint(k, s, -100, 100, np.int8),
    "rayleigh": lambda k, s: random.rayleigh(k, 2.0, s),
    "split": lambda k, s: random.uniform(random.split(k, 3)[1], s),
    "t": lambda k, s: random.t(k, 3.0, s),
    "triangular": lambda k, s: random.triangular(k, 0.0, 0.3, 1.0, s),
    "truncated_normal": lambda k, s: random.truncated_normal(k, -1.0, 2.0, s),
    "uniform": lambda k, s: random.uniform(k, s),
    "uniform of rbg": lambda k, s: random.uniform(_rbg(k), s),
    "wald": lambda k, s: random.wald(k, 2.0, s),
    "weibull_min": lambda k, s: random.weibull_min(k, 2.0, 1.5, s),
}


@dataclass(frozen=True)
class Outcome:
    """`said` is what is wrong, or the refusal; empty where all draws are right. `places`: by how
    many last places floats are off."""

    right: bool
    said: str = ""
    places: float = 0.0


def cases() -> Iterator[tuple[str, tuple[int, ...]]]:
    for name in SAMPLERS:
        for shape in SHAPES:
            yield name, shape


def run(name: str, shape: tuple[int, ...], draws: int = 4) -> Outcome:
    """Compiles one sampler in `float`, and compares what it draws for keys of its own."""
    sampler = SAMPLERS[name]
    keys = np.random.default_rng(len(name)).integers(0, 2**32, (draws, 2), np.uint32)
    want = [np.asarray(jax.jit(sampler, static_argnums=1)(key, shape)) for key in keys]
    try:
        compiled = jq.compile(jq.Model(lambda _, key: sampler(key, shape), {}, (keys[0],)), "float")
        got = [np.asarray(compiled(key)) for key in keys]
    except jq.CompilerError as error:
        return Outcome(False, str(error))
    except UserError as error:
        return Outcome("the compiled module failed" not in str(error), f"refused: {error}")
    places = [_places(g, w) for g, w in zip(got, want, strict=True)]
    wrong = [f"{g} for {w}" for g, w, n in zip(got, want, places, strict=True) if not n <= PLACES]
    return Outcome(not wrong, "; ".join(wrong), max(places))


def _places(got: np.ndarray, want: np.ndarray) -> float:
    """The difference in last places, infinite where integers or types differ."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return math.inf
    if np.array_equal(got, want) or got.dtype.kind not in "fV":
        return 0.0 if np.array_equal(got, want) else math.inf
    bits = ml_dtypes.finfo(want.dtype).nmant
    off = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
    return float(off / np.ldexp(np.abs(want.astype(np.float64)).max(), -bits))
