"""Linear algebra of LAPACK is refused by the name that the user wrote."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify, io_callback

import jq
from jq.base.errors import UserError
from jq.frontends.tracing import trace
from jq.frontends.tracing.custom_calls import refusal, written
from jq.ir.oracle import xla

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
    assert sum("debug_print is left out" in note for note in program.notes) == 1


def test_the_manifest_says_what_was_left_out():
    def fn(_, x):
        jax.debug.print("{}", x[0, 0])
        return x + 1

    notes = jq.compile(jq.Model(fn, {}, (MATRIX,)), "float").manifest.notes
    assert [note for note in notes if "debug_print is left out" in note]


def test_checks_are_left_out(caplog):
    """Also in loops, branches and batches; what has none is lowered as it is."""

    def fn(params, x):
        def same(row):
            checkify.check(row[0] > 0, "first")
            return row

        def step(total, row):
            checkify.check(row.sum() > 0, "row {}", row[0])
            return total + row, jax.lax.cond(row[0] > 1, same, lambda row: 2 * row, row)

        checkify.check(jnp.all(x > 0), "negative")
        return jax.lax.scan(step, x[0], x) if params is None else jax.vmap(step)(x, x)

    def plain(params, x):
        rows = jnp.where(x[:, :1] > 1, x, 2 * x)
        return (x[0] + x.sum(0), rows) if params is None else (2 * x, rows)

    for params in (None, {}):
        program = trace(jq.Model(fn, params, (MATRIX,)))
        assert [note for note in program.notes if "checkify.check is left out" in note]
        want = jax.tree.leaves(plain(params, MATRIX))
        for ours, theirs in zip(xla.XlaExecutable(program)(MATRIX), want, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert "checkify.check is left out" in caplog.text


def test_checks_that_are_functionalized_stay():
    def fn(_, x):
        checkify.check(jnp.all(x > 0), "negative")
        return x

    assert not trace(jq.Model(lambda p, x: checkify.checkify(fn)(p, x)[1], {}, (MATRIX,))).notes


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
