"""Programs have the values and the gradient of the functions that they were traced from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jq
from jq.ir.autodiff.evaluate import run
from jq.ir.autodiff.jax_ops import Unsupported
from jq.ir.autodiff.rounding import relative_error
from jq.ir.autodiff.sensitivity import Sensitivity
from tests.support.programs import evaluated
from tests.support.texts import load

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 8)).astype(np.float32)
W = RNG.standard_normal((8, 8)).astype(np.float32) / 3
PLACES = np.array([[3], [-2], [9], [3]], np.int32)  # one twice, two that do not exist
NUMBERS = lax.ScatterDimensionNumbers((1,), (0,), (0,))


def scattered(function):
    return lambda x: function(x, PLACES, 2 * x[:4], NUMBERS, mode="drop")


def one_each(x):
    def put(row, place, value):
        return lax.dynamic_update_slice(row, value, (place,))

    return jax.vmap(put)(x, jnp.array([7, 0, 3, -1, 5]), 3 * x[:, :2])


def counted(x):
    return lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ W) + x * i, x)


def scanned(x):
    return lax.scan(lambda c, row: (jnp.sin(c + row), c * row), x[0], x)[1]


def random(x):
    """A loop that nothing flows through, which ends where its data say."""
    n = lax.while_loop(lambda n: n * n < 50, lambda n: n + 1, PLACES[0, 0])
    return x * n


def branched(x):
    return lax.switch(PLACES[0, 0], [jnp.sin, jnp.cos, lambda x: x * x], x) + lax.cond(
        x[0, 0] > 0, jnp.exp, lambda x: 3 * x, x
    )


def transformed(x):
    return jnp.fft.irfft(jnp.fft.rfft(x) * (1 + 2j), 8)


def rounded(x):
    return lax.reduce_precision(x, 8, 7) * x


def bits(x):
    return x * (lax.bitcast_convert_type(x, jnp.uint32) >> 31)


def own_reduction(x):
    def combine(a, b):
        return a[0] + b[0], jnp.maximum(a[1], b[1])

    total, largest = lax.reduce((x, x * x), (jnp.float32(0), jnp.float32(0)), combine, (1,))
    return total * largest + lax.reduce(x, jnp.float32(0), jnp.logaddexp, (1,))


FUNCTIONS = {
    "scatter": scattered(lax.scatter),
    "scatter_add": scattered(lax.scatter_add),
    "scatter_min": scattered(lax.scatter_min),
    "batched update": one_each,
    "counted loop": counted,
    "scan": scanned,
    "loop beside": random,
    "branches": branched,
    "cumprod": lambda x: jnp.cumprod(x, 1) + lax.cumprod(x, 0, reverse=True),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, 1) + lax.cummax(x, 0),
    "fft": transformed,
    "reduce_precision": rounded,
    "bits": bits,
    "reduction": own_reduction,
}


def outputs(program, x):
    return run(program, [x], [jnp.asarray(w) for w in program.weights.values()], keep)[0]


def keep(_, value):
    return value


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient(name):
    fn = FUNCTIONS[name]
    program = jq.trace(jq.Model(lambda _, x: fn(x), {}, (X,))).program
    close = {"rtol": 2e-5, "atol": 2e-5 * float(np.abs(fn(X)).max())}
    np.testing.assert_allclose(outputs(program, X), fn(X), **close)
    signs = RNG.choice([-1.0, 1.0], fn(X).shape).astype(np.float32)
    got = jax.grad(lambda x: (outputs(program, x) * signs).sum())(jnp.asarray(X))
    want = jax.grad(lambda x: (fn(x) * signs).sum())(jnp.asarray(X))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * float(np.abs(want).max()))


INDICES_FIRST = """(%x: tensor<5x8xf32>, %i: tensor<2x3xi32>) -> tensor<5x8xf32> {
  %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<
    collapsed_slice_dims = [0, 1], start_index_map = [1, 0], index_vector_dim = 0>,
    slice_sizes = array<i64: 1, 1>}> : (tensor<5x8xf32>, tensor<2x3xi32>) -> tensor<3xf32>
  %z = "stablehlo.scatter"(%x, %i, %y) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1],
    index_vector_dim = 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<5x8xf32>, tensor<2x3xi32>, tensor<3xf32>) -> tensor<5x8xf32>
  return %z : tensor<5x8xf32> }"""


def test_indices_along_any_axis():
    program, i = load(INDICES_FIRST), np.array([[1, 4, 0], [2, 0, 7]], np.int32)
    (ours,) = run(program, [X, i], [], keep)
    (theirs,) = evaluated(program, X, i)
    np.testing.assert_array_equal(ours, theirs)


def until(x):
    return lax.while_loop(lambda c: jnp.abs(c).max() > 0.1, lambda c: c * 0.7, x)


def product_at_places(x):
    return scattered(lax.scatter_mul)(x)


def largest_and_place(x):
    def combine(a, b):
        first = a[0] >= b[0]
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    value, place = lax.reduce((x, places), (jnp.float32(-9), jnp.int32(0)), combine, (1,))
    return value * place


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (until, "a loop that ends where its data say"),
        (product_at_places, "a scatter by multiply at equal places"),
        (largest_and_place, "values and their places"),
        (lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "SAME"), "windows of other"),
    ],
)
def test_what_has_none_is_named(fn, reason):
    program = jq.trace(jq.Model(lambda _, x: fn(jnp.sin(x)), {}, (X,))).program
    (sine,) = (op for op in program.body.operations if op.operation.name == "stablehlo.sine")
    with pytest.raises(Unsupported, match=reason):
        Sensitivity(program, {"sine": (sine.operation.results[0], (1,))})


def test_its_arrays_are_no_programs(caplog):
    """`jnp.asarray` compiles one for each shape: of weights, inputs, and what is compared."""
    x, w = np.ones((3, 17), np.float32), np.ones((17, 5), np.float32)
    program = jq.trace(jq.Model(lambda p, x: jnp.sin(x @ p["w"]), {"w": w}, (x,))).program
    (product,) = (op for op in program.walk() if op.operation.name == "stablehlo.dot_general")
    with jax.log_compiles(), caplog.at_level("WARNING", "jax"):
        gradient = Sensitivity(program, {"w": (product.operation.results[0], (1,))})
        (found,) = gradient([x], 0, 1).values()
        assert relative_error([([found], [2 * found])]) == 0.25
    said = [record.getMessage() for record in caplog.records]
    assert sum("Finished XLA compilation" in text for text in said) == 1
