"""Linear algebra of LAPACK is refused by the name that the user wrote."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import jq
from jq.errors import UserError
from jq.tracing import trace
from jq.tracing.outside import refusal, written

MATRIX = np.eye(3, dtype=np.float32) * 2


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("jnp.linalg.qr", jnp.linalg.qr),
        ("jnp.linalg.inv", jnp.linalg.inv),
        ("jnp.linalg.solve", lambda x: jnp.linalg.solve(x, x)),
        ("jnp.linalg.cholesky", jnp.linalg.cholesky),
        ("jnp.linalg.pinv", jnp.linalg.pinv),
        ("jax.scipy.linalg.expm", jax.scipy.linalg.expm),
        ("jax.lax.linalg.eig", jnp.linalg.eig),
        ("jax.lax.linalg.svd", jax.lax.linalg.svd),
        ("jax.lax.linalg.qr", jax.lax.linalg.qr),
    ],
)
def test_the_name_is_the_users(name, fn):
    with pytest.raises(UserError, match=f"^{name} is done by LAPACK") as error:
        jq.trace(jq.Model(lambda _, x: fn(x), {}, (MATRIX,)))
    assert "outside of the model" in str(error.value)


def test_layers_that_are_called_like_functions_are_none():
    assert written("jit(f)/norm/jit(qr)/geqrf") == "jnp.linalg.qr"
    assert written("jit(f)/norm") is None


def test_callbacks_are_named():
    def fn(_, x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(UserError, match="calls back into Python"):
        jq.trace(jq.Model(fn, {}, (MATRIX,)))
    assert "CustomThing" in str(refusal("CustomThing", "jit(f)/layer"))


def test_what_is_printed_while_debugging_is_left_out(caplog):
    def fn(_, x):
        def step(total, row):
            jax.debug.print("{}", total)
            return total + row, row

        jax.debug.callback(print, x)
        return jax.lax.scan(step, x[0], x)[0]

    program = trace(jq.Model(fn, {}, (MATRIX,)))
    assert not [op for op in program.walk() if op.operation.name == "stablehlo.custom_call"]
    assert "debug_print is left out" in caplog.text
    assert "debug_callback is left out" in caplog.text


def test_callbacks_with_effects_of_their_own_are_refused():
    def fn(_, x):
        io_callback(print, None, x)
        return x

    with pytest.raises(UserError, match="calls back into Python"):
        jq.trace(jq.Model(fn, {}, (MATRIX,)))


def test_ops_that_no_target_has_are_refused():
    def fn(_, a, b):
        return jax.lax.linalg.triangular_solve(a, b, left_side=True)

    half = MATRIX.astype(np.float16)  # LAPACK has none of 16 bits: an op of StableHLO's
    with pytest.raises(UserError, match=r"jax\.lax\.linalg\.triangular_solve has no form"):
        jq.trace(jq.Model(fn, {}, (half, half)))
