"""XLA as the float reference of whole models gives what `jax.jit` gives."""

from __future__ import annotations

import jax
import numpy as np

from jq import api
from jq.ir.oracle.xla import XlaExecutable
from jq.models.zoo.mobilenet import build


def test_a_convolution_network_on_xla_is_what_jit_computes() -> None:
    """With XLA's simplifier off, the mean after the last convolution of this one is wrong."""
    model = build(depth=0.2, classes=10)
    (spec,) = model.example_inputs
    x = np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)
    got = XlaExecutable(api.trace(model).program)(x)[0]
    want = np.asarray(jax.jit(model.fn)(model.params, x))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
