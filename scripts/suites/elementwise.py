"""Elementwise functions over all exponents of a float type, and their errors in last places.

A function is given with its exact value, by NumPy or SciPy in float64. Those that JAX computes by a
formula, in steps that are rounded, are `FORMULAS`: a program is then held to XLA's result
of the same formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as js
import ml_dtypes
import numpy as np
import scipy.special as sp
from jax import lax

Exact = Callable[..., np.ndarray]
Function = tuple[Callable[..., Any], Exact]
DTYPES = {np.dtype(t).name: np.dtype(t) for t in (np.float32, ml_dtypes.bfloat16, np.float16)}
LIMIT = 4.0  # last places
ROUNDINGS = 32.0  # of a formula's steps, as in `close.py`
UNARY: dict[str, Function] = {
    "abs": (lax.abs, np.abs),
    "sign": (lax.sign, np.sign),
    "floor": (lax.floor, np.floor),
    "ceil": (lax.ceil, np.ceil),
    "round": (jnp.round, np.round),
    "sqrt": (lax.sqrt, np.sqrt),
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x)),
    "cbrt": (lax.cbrt, np.cbrt),
    "exp": (lax.exp, np.exp),
    "expm1": (lax.expm1, np.expm1),
    "log": (lax.log, np.log),
    "log1p": (lax.log1p, np.log1p),
    "sin": (lax.sin, np.sin),
    "cos": (lax.cos, np.cos),
    "tan": (lax.tan, np.tan),
    "asin": (lax.asin, np.arcsin),
    "acos": (lax.acos, np.arccos),
    "atan": (lax.atan, np.arctan),
    "tanh": (lax.tanh, np.tanh),
    "asinh": (lax.asinh, np.arcsinh),
    "acosh": (lax.acosh, np.arccosh),
    "atanh": (lax.atanh, np.arctanh),
    "erf": (lax.erf, sp.erf),
    "erf_inv": (lax.erf_inv, sp.erfinv),
    "lgamma": (lax.lgamma, lambda x: np.where(np.isinf(x), np.inf, sp.gammaln(x))),
}
BINARY: dict[str, Function] = {
    "add": (lax.add, np.add),
    "sub": (lax.sub, np.subtract),
    "mul": (lax.mul, np.multiply),
    "div": (lax.div, np.divide),
    "rem": (lax.rem, np.fmod),
    "pow": (lax.pow, np.power),
    "atan2": (lax.atan2, np.arctan2),
    "max": (lax.max, np.maximum),
    "min": (lax.min, np.minimum),
    "hypot": (jnp.hypot, np.hypot),
}
FORMULAS: dict[str, Function] = {
    "erfc": (lax.erfc, sp.erfc),
    "cosh": (lax.cosh, np.cosh),
    "sinh": (lax.sinh, np.sinh),
    "exp2": (jnp.exp2, np.exp2),
    "log2": (jnp.log2, np.log2),
    "log10": (jnp.log10, np.log10),
    "sinc": (jnp.sinc, np.sinc),
    "sigmoid": (jax.nn.sigmoid, sp.expit),
    "silu": (jax.nn.silu, lambda x: x * sp.expit(x)),
    "softplus": (jax.nn.softplus, lambda x: np.logaddexp(x, 0)),
    "elu": (jax.nn.elu, lambda x: np.maximum(x, 0) + np.expm1(np.minimum(x, 0))),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), lambda x: x * sp.ndtr(x)),
    "digamma": (lax.digamma, sp.digamma),
    "gamma": (js.gamma, sp.gamma),
    "bessel_i0e": (lax.bessel_i0e, sp.i0e),
    "bessel_i1e": (lax.bessel_i1e, sp.i1e),
    "entr": (js.entr, sp.entr),
    "logit": (js.logit, sp.logit),
}


# The largest of a formula's terms, where they cancel: its steps are rounded at their size.
# Left of 1/2, digamma(x) is digamma(1 - x) - pi / tan(pi x).
TERMS: dict[str, Exact] = {
    "digamma": lambda x: np.where(
        x < 0.5, np.abs(sp.digamma(1 - x)) + np.abs(np.pi / np.tan(np.pi * (x % 1))), 0
    )
}


@dataclass(frozen=True)
class Error:
    """The largest errors of a function, in last places; infinite where NaN stands for a number."""

    ours: float
    theirs: float
    wrong: int  # numbers for which the program is not as near as it has to be
    where: tuple[float, ...]  # where it is farthest from that


def numbers(dtype: np.dtype, each: int) -> np.ndarray:
    """Numbers of all exponents and both signs, with infinity and NaN: all of a type of 16 bits, or
    `each` drawn ones of every exponent with the first and the last of it.

    Below the smallest normal number there is only zero where compilers flush (not in float16)."""
    if dtype.itemsize == 2:
        found = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    else:
        drawn = np.random.default_rng(0).integers(0, 1 << 23, (512, each), np.uint32)
        ends = np.broadcast_to(np.array([0, (1 << 23) - 1], np.uint32), (512, 2))
        exponents = np.arange(512, dtype=np.uint32)[:, None] << 23
        found = (exponents | np.concatenate([drawn, ends], 1)).ravel().view(np.float32)
    with np.errstate(invalid="ignore"):  # NaN that signals
        return found[~_flushed(found.astype(np.float64), dtype)]


def pairs(dtype: np.dtype, each: int, most: int = 1 << 15) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of such numbers, and of numbers of the usual size."""
    rng = np.random.default_rng(1)
    x = numbers(dtype, each)
    usual = (3 * rng.standard_normal(len(x))).astype(dtype)
    a = np.concatenate([x, usual, x, np.abs(usual)])
    b = np.concatenate([rng.permutation(x), rng.permutation(usual), usual, rng.permutation(usual)])
    order = rng.permutation(len(a))[:most]
    return a[order], b[order]


def _flushed(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    kind = ml_dtypes.finfo(dtype)
    if kind.minexp > -100:
        return np.zeros(x.shape, bool)
    return (x != 0) & (np.abs(x) < float(kind.smallest_normal))


def last_places(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in steps of the type of `found`. Beyond its largest number stands infinity, which is
    the next step; what it flushes is zero."""
    dtype, kind = found.dtype, ml_dtypes.finfo(found.dtype)
    f, e = found.astype(np.float64), exact.astype(np.float64)
    f, e = (np.where(_flushed(v, dtype), 0, v) for v in (f, e))
    beyond = 2.0 ** int(kind.maxexp)
    f, e = np.clip(f, -beyond, beyond), np.clip(e, -beyond, beyond)
    size = np.maximum(np.abs(np.nan_to_num(e)), float(kind.smallest_normal))
    error = np.abs(f - e) / 2.0 ** (np.floor(np.log2(size)) - kind.nmant)
    broken = np.isnan(f) != np.isnan(e)
    return np.where(broken, np.inf, np.where(np.isnan(e), 0, error))


def _largest_near(x: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The largest finite error at numbers of the same exponent, or an infinite one of its own."""
    exponents = np.frexp(np.where(np.isfinite(x), x, 0).astype(np.float64))[1]
    largest = np.zeros(int(np.ptp(exponents)) + 1)
    places = exponents - exponents.min()
    np.maximum.at(largest, places, np.where(np.isinf(error), 0, error))
    return np.maximum(largest[places], error)


def errors(
    compile_: Callable[[Callable[..., Any], tuple[np.ndarray, ...]], Callable[..., Any]],
    functions: Mapping[str, Function],
    inputs: tuple[np.ndarray, ...],
) -> dict[str, Error]:
    """Errors by name. All functions are one program, by `compile_(function, inputs)` and by XLA."""

    def all_of(*x: Any) -> list[Any]:
        return [function(*x) for function, _ in functions.values()]

    found, theirs = compile_(all_of, inputs)(*inputs), jax.jit(all_of)(*inputs)
    result = {}
    for name, ours, xla in zip(functions, found, theirs, strict=True):
        with np.errstate(all="ignore"):
            exact = functions[name][1](*(x.astype(np.float64) for x in inputs))
            ours, xla = (last_places(np.asarray(v), exact) for v in (ours, xla))
        bound = np.full(ours.shape, LIMIT)
        if name in FORMULAS:
            bound = ROUNDINGS + LIMIT * _largest_near(inputs[0], xla)
            if name in TERMS:
                with np.errstate(all="ignore"):
                    terms = TERMS[name](inputs[0].astype(np.float64))
                    bound += ROUNDINGS * np.nan_to_num(terms / np.abs(exact), posinf=np.inf)
        over = np.where(np.isinf(bound), 0, ours - np.where(np.isinf(bound), 0, bound))
        i = int(np.argmax(over))
        where = tuple(float(x[i]) for x in inputs)
        result[name] = Error(float(ours.max()), float(xla.max()), int((over > 0).sum()), where)
    return result
