"""Rotations that end up in weights: found by dataflow, the float model unchanged, outliers gone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline
from jq.passes.recovery._rotations import Rotation, reshaped
from jq.passes.recovery.rotate import Rotate, rotation
from jq.planning.decisions import QuantPlan
from tests.passes.recovery.models import TARGET, normal
from tests.support.programs import evaluated

RNG = np.random.default_rng(31)
SETTINGS = load_pipeline("int8-dynamic").settings
X = RNG.standard_normal((2, 6, 16)).astype(np.float32)


def rotated(program):
    copy = program.clone()
    changed = Rotate().run(copy, PassContext(QuantPlan((), {}), SETTINGS, TARGET))
    copy.verify()
    return copy, changed


def changed_weights(program, copy):
    shared = program.weights.keys() & copy.weights.keys()
    return {n for n in shared if (program.weights[n] != copy.weights[n]).any()}


def _same(got: np.ndarray, want: np.ndarray) -> None:
    """Sums of at most 64 terms in a row, rounded in another basis."""
    np.testing.assert_allclose(got, want, rtol=0, atol=64 * 2.0**-24 * np.abs(want).max())


@pytest.mark.parametrize("size", [2, 12, 16, 20, 36, 100])
def test_a_rotation_is_orthogonal(size):
    q = rotation(size, 3)
    np.testing.assert_allclose(q @ q.T, np.eye(size), atol=1e-12)


def test_two_products_by_hand():
    """The matrix that ends up in the first weight is the inverse of that in the second."""
    params = {"w1": np.eye(4, dtype=np.float32), "b": np.ones(4, np.float32), "w2": normal(4, 4)}
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    program = trace(Model(lambda p, x: (x @ p["w1"] + p["b"]) @ p["w2"], params, (x,)))
    copy, changed = rotated(program)
    q = copy.weights["w1"]
    assert changed
    np.testing.assert_allclose(q, rotation(4, 0), atol=1e-7)
    np.testing.assert_allclose(copy.weights["w2"], q.T @ params["w2"], atol=1e-6)
    _same(evaluated(copy, x)[0], evaluated(program, x)[0])


def rms(p, x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * p


def heads(x):
    return x.reshape(2, 6, 4, 4)


def layer(p, x):
    """A decoder's layer: RMS norms, attention, a gated MLP, residual sums."""
    y = rms(p["norm1"], x)
    q, k, v = (heads(y @ p[n]) for n in ("q", "k", "v"))
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", jnp.tanh(q), jnp.tanh(k)))
    x = x + jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(2, 6, 16) @ p["o"]
    y = rms(p["norm2"], x)
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]


def decoder(p, x):
    tokens = jnp.arange(12).reshape(2, 6) % 7
    x = p["table"][tokens] * 4.0 + x @ p["input"]
    for i in range(2):
        x = layer(p["layers"][i], x)
    return rms(p["norm"], x) @ p["head"]


def decoder_params():
    def one():
        return {
            "norm1": 1 + normal(16),
            "norm2": 1 + normal(16),
            **{n: normal(16, 16) for n in "qkvo"},
            "gate": normal(16, 24),
            "up": normal(16, 24),
            "down": normal(24, 16),
        }

    return {
        "table": normal(7, 16),
        "input": normal(16, 16),
        "layers": [one(), one()],
        "norm": 1 + normal(16),
        "head": normal(16, 10),
    }


def test_a_decoder_with_rms_norms():
    """The whole residual stream, and the values of attention head by head."""
    program = trace(Model(decoder, decoder_params(), (X,)))
    copy, changed = rotated(program)
    assert changed
    expected = {"table", "input", "head"}
    for i in range(2):
        expected |= {f"layers/{i}/{n}" for n in (*"qkvo", "gate", "up", "down")}
    assert changed_weights(program, copy) == expected
    before, after = evaluated(program, X)[0], evaluated(copy, X)[0]
    np.testing.assert_allclose(after, before, atol=3e-5 * np.abs(before).max())
    assert not any("norm" in n for n in copy.weights)  # their vectors are in the weights after


def test_an_outlier_channel_is_gone():
    params = decoder_params()
    params["table"][:, 3] = 50

    def stream(p, x):
        return p["table"][jnp.arange(12).reshape(2, 6) % 7] + x @ p["input"]

    def f(p, x):
        y = stream(p, x)
        return rms(p["norm"], y) @ p["head"]

    kept = {k: params[k] for k in ("table", "input", "norm", "head")}
    program = trace(Model(f, kept, (X,)))
    copy, changed = rotated(program)
    assert changed
    tables = [np.abs(p.weights["table"]) for p in (program, copy)]
    ratios = [t.max() / np.sqrt((t**2).mean()) for t in tables]
    assert ratios[0] > 3.5 and ratios[1] < 1.5
    np.testing.assert_allclose(evaluated(copy, X)[0], evaluated(program, X)[0], atol=1e-4)


@pytest.mark.parametrize("outlier", [1, 50])
def test_with_float_activations_only_what_rounds_better(outlier):
    """Weights of one column and one scale: an outlier costs all others their precision, and a
    rotation evens them out. Signs alone, which round without an error, are left alone."""
    pipeline = load_pipeline("int8-weight-only", {"min_elements": 1, "weights.format": "int4"})
    head = RNG.choice([-1.0, 1.0], (16, 1)).astype(np.float32)
    head[0] *= outlier
    params = {"w": np.eye(16, dtype=np.float32), "head": head}
    program = trace(Model(lambda p, x: (x @ p["w"]) @ p["head"], params, (X,)))
    cx = PassContext(QuantPlan((), {}), pipeline.settings, TARGET)
    assert Rotate().run(program, cx) == (outlier > 1)


def test_convolutions():
    def conv(x, w):
        numbers = ("NHC", "HIO", "NHC")
        return jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=numbers)

    params = {"a": normal(3, 16, 12), "b": normal(12), "c": normal(1, 12, 8)}
    program = trace(Model(lambda p, x: conv(conv(x, p["a"]) + p["b"], p["c"]), params, (X,)))
    copy, changed = rotated(program)
    assert changed and {"a", "c"} <= changed_weights(program, copy)
    _same(evaluated(copy, X)[0], evaluated(program, X)[0])


@pytest.mark.parametrize("step", ["relu", "layer norm", "returned", "vector", "mean", "input"])
def test_what_is_not_linear_is_left_alone(step, caplog):
    def f(p, x):
        y = x @ p["w"]
        if step == "relu":
            y = jax.nn.relu(y)
        if step == "layer norm":
            y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-6)
        if step == "vector":
            return (y * p["b"]) @ p["v"] + (y * p["b"])
        if step == "mean":
            return y @ p["v"], y.mean(-1)
        if step == "input":
            return x @ p["v"]
        return y @ p["v"], (y if step == "returned" else jnp.zeros(()))

    params = {"w": normal(16, 16), "b": normal(16), "v": normal(16, 16)}
    program = trace(Model(f, params, (X,)))
    copy, changed = rotated(program)
    assert not changed and copy.text() == program.text() and "rotate was skipped" in caplog.text


@pytest.mark.parametrize(
    ("before", "after", "turn", "expected"),
    [
        ((2, 6, 4, 4), (2, 6, 16), Rotation(3, 1, 4), Rotation(2, 4, 4)),
        ((2, 6, 16), (2, 6, 4, 4), Rotation(2, 4, 4), Rotation(3, 1, 4)),
        ((2, 6, 4, 4), (2, 6, 16), Rotation(2, 1, 4), Rotation(2, 1, 4, 4)),
        ((2, 6, 16), (12, 16), Rotation(2, 1, 16), Rotation(1, 1, 16)),
        ((2, 6, 16), (2, 6, 2, 8), Rotation(2, 4, 4), Rotation(3, 2, 4)),
        ((2, 6, 16), (2, 6, 4, 4), Rotation(2, 1, 16), None),
    ],
)
def test_reshapes(before, after, turn, expected):
    if expected is None:
        with pytest.raises(Exception, match="cuts the axis"):
            reshaped(before, after, turn)
        return
    assert reshaped(before, after, turn) == expected
    x, q = RNG.standard_normal(before), rotation(turn.size, 1)
    np.testing.assert_allclose(expected.apply(x.reshape(after), q), turn.apply(x, q).reshape(after))
