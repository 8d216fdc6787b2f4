"""Programs of a few ops that IREE 3.13 refuses, and that compile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jq
from tests.traps.helpers import defect, mended, raw

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 9)).astype(np.float32)
REVERSED = """(%x: tensor<7x9xf32>) -> tensor<7x5xf32> {
  %s = stablehlo.slice %x [0:7, 0:9:2] : (tensor<7x9xf32>) -> tensor<7x5xf32>
  %r = stablehlo.reverse %s, dims = [0, 1] : tensor<7x5xf32>
  %y = stablehlo.maximum %r, %r : tensor<7x5xf32>
  %z = stablehlo.add %y, %r : tensor<7x5xf32>
  return %z : tensor<7x5xf32> }"""


@defect("shield-reversals")
def test_reversal_of_every_second_element(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    raw(REVERSED, X)


def test_reversal_of_every_second_element_is_shielded():
    np.testing.assert_array_equal(mended("shield-reversals", REVERSED, X)[0], 2 * X[::-1, ::-2])


def diagonal_layers(layers, x):
    """Two layers of a diagonal state-space model (S5), by a scan over pairs of complex numbers."""

    def joined(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    for decay, into, out in layers:
        inputs = x.astype(jnp.complex64) @ into
        decays = jnp.broadcast_to(decay, inputs.shape)
        _, states = jax.lax.associative_scan(joined, (decays, inputs))
        x = x + jax.nn.gelu((states @ out).real)
    return x


def test_constants_that_iree_evaluates_in_a_wrong_order():
    def array(*shape):
        return (0.3 * (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape))).astype("c8")

    layers = [(array(32), array(16, 32), array(32, 16)) for _ in range(2)]
    x = RNG.standard_normal((17, 16)).astype(np.float32)
    compiled = jq.compile(jq.Model(lambda p, x: diagonal_layers(layers, x), {}, (x,)), "float")
    want = np.asarray(jax.jit(lambda x: diagonal_layers(layers, x))(x))
    np.testing.assert_allclose(compiled(x), want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
