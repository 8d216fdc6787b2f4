"""Blocks on both sides of a product: exact sums of a block, whoever wrote the blocks."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.formats import Encoding, get_format
from tests.support.programs import evaluated

K, N = 96, 40
RNG = np.random.default_rng(3)
W = RNG.standard_normal((K, N)).astype(np.float32)
X = (RNG.standard_normal((2, 3, K)) * np.exp(RNG.standard_normal((2, 3, K)))).astype(np.float32)
PAIRS = {"mxint8": 32, "mxfp8": 32, "mxfp4": 32, "nvfp4": 16}


def rounded(name, x, axis):
    """In double precision, by the definition of the format."""
    fmt = get_format({"mxfp8": "mxfp8_e4m3"}.get(name, name))
    block = tuple(PAIRS[name] if a == axis else 1 for a in range(x.ndim))
    enc = Encoding(fmt.name, x.shape, block)
    return fmt.to_numpy(fmt.encode(x, enc), enc).astype(np.float64)


def close(got, want, magnitude):
    """One rounding a block and a sum of them, or a float32 sum of K products."""
    assert (np.abs(np.asarray(got, np.float64) - want) <= K * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize("name", PAIRS)
def test_a_pipeline_of_blocks_computes_the_blocks(name):
    model = jq.Model(lambda p, x: x @ p["w"], {"w": W}, (X,))
    (op,) = jq.plan(model, pipeline=name).ops
    assert op.decision == ("weight-only" if name == "mxfp8" else "integer")
    x, w = rounded(name, X, 2), rounded(name, W, 0)
    magnitude = np.abs(x) @ np.abs(w)
    close(evaluated(jq.rewrite(model, pipeline=name)["integer"], X)[0], x @ w, magnitude)
    close(jq.compile(model, name)(X), x @ w, magnitude)


def trained(p, x):
    x = jq.mx_fake_quant(x, "mxint8")
    return jnp.swapaxes(jq.mx_fake_quant(x), 0, 1) @ jq.mx_fake_quant(p["w"], "mxint8", axis=0)


@pytest.mark.parametrize("pipeline", ["float", "int8-dynamic", "int8-static"])
def test_blocks_of_the_model_are_multiplied_as_integers(pipeline):
    """Rounded twice in the model, moved, and quantized for the product: one quantize is left."""
    model = jq.Model(trained, {"w": W}, (X,))
    (op,) = jq.plan(model, pipeline=pipeline).ops
    assert op.decision == "integer"
    assert op.to_dict()["activations"] == "mxint8 per-block symmetric"
    levels = jq.rewrite(model, pipeline=pipeline)
    assert str(levels["qdq"].module).count('composite "jq.quantize_dynamic"') == 2
    x, w = rounded("mxint8", X.swapaxes(0, 1), 2), rounded("mxint8", W, 0)
    close(jq.compile(model, pipeline)(X), x @ w, np.abs(x) @ np.abs(w))


@pytest.mark.parametrize(
    ("f", "weights"),
    [
        (lambda p, x: jq.mx_fake_quant(x, "mxfp8_e4m3") @ p["w"], "int8 per-channel symmetric"),
        (lambda p, x: jq.mx_fake_quant(x, "mxint8", axis=1) @ p["w"], "int8 per-channel symmetric"),
    ],
)
def test_blocks_that_are_not_summed_stay_floats(f, weights):
    """Formats without integers, and blocks across the rows: not rounded a second time."""
    (op,) = jq.plan(jq.Model(f, {"w": W}, (X,)), pipeline="int8-dynamic").ops
    assert (op.decision, op.to_dict()["weights"]) == ("weight-only", weights)
    assert "which is multiplied as floats" in op.note


def test_blocks_that_do_not_divide_leave_the_weight_stored():
    w, x = W[:33], X[..., :33]
    (op,) = jq.plan(jq.Model(lambda p, x: x @ p["w"], {"w": w}, (x,)), pipeline="mxint8").ops
    assert (op.decision, op.note) == (
        "weight-only",
        "blocks of 32 do not divide the 33 that are summed",
    )
