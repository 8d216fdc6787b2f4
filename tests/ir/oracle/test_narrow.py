"""Products of values of less than 8 bits: XLA refuses most of them as they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jq
from jq.ir.oracle.xla import XlaExecutable

INTEGERS = ("int4", "uint4", "int2", "uint2")
KINDS = [*((k, np.int32) for k in INTEGERS), ("float4_e2m1fn", np.float32)]


def drawn(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """All values of a type, its ends too."""
    low, high = (
        (ml_dtypes.iinfo(kind).min, ml_dtypes.iinfo(kind).max + 1) if "int" in kind else (-6, 7)
    )
    found = np.random.default_rng(seed).integers(low, high, shape)
    return found.astype(np.float32).astype(jnp.dtype(kind))


@pytest.mark.parametrize(("kind", "wide"), KINDS)
@pytest.mark.parametrize("same", [False, True])
def test_a_product(kind: str, wide: type, same: bool) -> None:
    x, w = drawn(kind, (2, 5, 8), 0), drawn(kind, (2, 8, 3), 1)
    given = None if same else wide

    def product(_: object, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.einsum("bij,bjk->bik", a, b, preferred_element_type=given)

    (found,) = XlaExecutable(jq.trace(jq.Model(product, {}, (x, w))).program)(x, w)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    if same and "int" in kind:  # wraps around
        bits = ml_dtypes.iinfo(kind).bits
        exact = (exact.astype(np.int64) - ml_dtypes.iinfo(kind).min) % 2**bits + ml_dtypes.iinfo(
            kind
        ).min
    right = exact.astype(np.float32).astype(jnp.dtype(kind)) if same else exact
    np.testing.assert_array_equal(found.astype(np.float64), right.astype(np.float64))


@pytest.mark.parametrize(("kind", "wide"), KINDS)
def test_a_convolution(kind: str, wide: type) -> None:
    x, w = drawn(kind, (1, 6, 4), 2), drawn(kind, (3, 4, 2), 3)

    def convolved(_: object, a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            a,
            b,
            (1,),
            "VALID",
            dimension_numbers=("NWC", "WIO", "NWC"),
            preferred_element_type=wide,
        )

    (found,) = XlaExecutable(jq.trace(jq.Model(convolved, {}, (x, w))).program)(x, w)
    a, b = x.astype(np.float64), w.astype(np.float64)
    right = sum(a[:, i : i + 4] @ b[i] for i in range(3))
    np.testing.assert_array_equal(found.astype(np.float64), right)


@pytest.mark.parametrize("kind", ["int4", "int2"])
def test_an_artifact_of_such_products_can_be_compared(kind: str) -> None:
    """The reference is widened where XLA refuses what IREE computes."""
    x, w = drawn(kind, (5, 8), 4), drawn(kind, (8, 3), 5)

    def product(p: jax.Array, a: jax.Array) -> jax.Array:
        return jnp.dot(a, p, preferred_element_type=jnp.int32)

    model = jq.Model(product, w, (x,))
    compiled = jq.compile(model, "float")
    np.testing.assert_array_equal(compiled(x), x.astype(np.int32) @ w.astype(np.int32))
    (output,) = jq.compare(model, compiled, [(x,)]).outputs
    assert output.max_abs_error == 0
