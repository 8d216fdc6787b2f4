"""atan2 within the last places of float32, in every octant, and powers of any sign."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.iree.compiler import compile_module
from jq.iree.runtime import Executable
from tests.traps.helpers import trap

RNG = np.random.default_rng(0)
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-30, 3e38], np.float32)
Y, X = (
    np.concatenate([RNG.standard_normal(4000).astype(np.float32), grid.ravel()])
    for grid in np.meshgrid(EDGES, EDGES)
)
KIND = f"tensor<{Y.size}xf32>"
TEXT = f"""func.func @main(%y: {KIND}, %x: {KIND}) -> {KIND} {{
  %a = stablehlo.atan2 %y, %x : {KIND}
  return %a : {KIND}
}}"""


def places(found: np.ndarray) -> float:
    """The largest error in last places of float32; a wrong sign of zero or NaN is infinite."""
    exact = np.arctan2(Y.astype(np.float64), X.astype(np.float64))
    same = (np.isnan(found) == np.isnan(exact)) & (
        np.isnan(exact) | (np.signbit(found) == np.signbit(exact))
    )
    step = np.spacing(np.abs(exact.astype(np.float32)))
    error = np.abs(found - exact) / np.maximum(step, np.finfo(np.float32).tiny)
    return float(np.nanmax(np.where(same, error, np.inf)))


def test_every_octant() -> None:
    def fn(_: Any, y: Any, x: Any) -> Any:
        return jnp.arctan2(y, x)

    compiled = jq.compile(jq.Model(fn, {}, (Y, X)), pipeline="float")
    assert places(np.asarray(compiled(Y, X))) <= 2.5  # one rounding each of ratio, series and sum
    narrow = Y[:64].astype(np.float16), X[:64].astype(np.float16)
    half = np.asarray(jq.compile(jq.Model(fn, {}, narrow), pipeline="float")(*narrow))
    exact = np.arctan2(*(v.astype(np.float64) for v in narrow)).astype(np.float16)
    assert half.dtype == np.float16
    assert (np.abs(half.view(np.int16) - exact.view(np.int16)) <= 1).all()


@trap
def test_the_compilers_own() -> None:
    program = compile_module(TEXT.encode())
    assert places(Executable.load(program.vmfb)(Y, X)[0]) <= 4


BASES, EXPONENTS = np.meshgrid(
    np.float32([-2.5, -1.0, -0.0, 0.0, 3.0, np.inf, -np.inf, np.nan]),
    np.float32([3.0, 2.0, -1.0, 0.0, 0.5, -2.0, np.inf, -np.inf, np.nan]),
)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_powers_of_any_sign(dtype: str) -> None:
    x, y = (jnp.asarray(v, dtype) for v in (BASES, EXPONENTS))
    compiled = jq.compile(jq.Model(lambda _, x, y: jnp.power(x, y), {}, (x, y)), pipeline="float")
    with np.errstate(all="ignore"):
        exact = np.asarray(jnp.asarray(np.power(BASES, EXPONENTS), dtype), np.float32)
    found = np.asarray(compiled(x, y), np.float32)
    np.testing.assert_allclose(found, exact, rtol=3e-7)
    assert (np.signbit(found) == np.signbit(exact))[~np.isnan(exact)].all()


def test_complex_powers_are_rounded_as_float32() -> None:
    """An exponent y log x that is rounded is off by its own size, and so is the power's angle."""
    parts = RNG.standard_normal((4, 500)).astype(np.float32)
    x, y = ((a + 1j * b).astype(np.complex64) for a, b in (parts[:2], parts[2:]))
    edges = np.array([[0, 0], [0, 1], [0, 2 + 1j], [1e30, 1], [1e-30j, 1], [-2, 3]], np.complex64)
    x, y = (np.concatenate([v, edge]) for v, edge in zip((x, y), edges.T, strict=True))
    compiled = jq.compile(jq.Model(lambda _, x, y: x**y, {}, (x, y)), pipeline="float")
    exact = x.astype(complex) ** y.astype(complex)
    size = np.abs(y) * np.abs(np.log(np.where(x == 0, 1, x).astype(complex)))
    error = np.abs(np.asarray(compiled(x, y)) - exact)
    assert (error <= 2.0**-23 * (4 + 2 * size) * np.abs(exact)).all()


@trap
def test_powers_of_negative_numbers() -> None:
    program = compile_module(b"""func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.power %x, %y : tensor<f32>
  return %0 : tensor<f32>
}""")
    assert Executable.load(program.vmfb)(np.float32(-2), np.float32(3))[0] == -8
