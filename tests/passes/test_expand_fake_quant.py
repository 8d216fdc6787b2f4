"""Models trained with fake quantization: their own parameters reach the integer program."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.models.zoo.digits_cnn import splits, train_classifier
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
W = RNG.standard_normal((64, 48)).astype(np.float32)
X = RNG.standard_normal((4, 64)).astype(np.float32)
fq = jq.fake_quant


def model(fn, params=None, x=X):
    return jq.Model(fn, {"w": W} if params is None else params, (x,))


def weight(p):
    return fq(p["w"], granularity="per-channel")


def test_two_layers_trained_compile_without_calibration_to_the_same_accuracy():
    images, labels, test, truth = splits()
    flat, test = images.reshape(len(images), -1), test.reshape(len(test), -1)

    def forward(p, x):
        x = fq(x, range=(0.0, 1.0), scheme="asymmetric")
        x = jnp.maximum(x @ fq(p["a"], granularity="per-channel") + p["c"], 0)
        x = fq(x, range=(0.0, p["top"]), scheme="asymmetric")
        return x @ fq(p["b"], granularity="per-channel") + p["d"]

    start = {
        "a": RNG.normal(0, 0.15, (64, 48)).astype(np.float32),
        "c": np.zeros(48, np.float32),
        "b": RNG.normal(0, 0.15, (48, 10)).astype(np.float32),
        "d": np.zeros(10, np.float32),
        "top": np.float32(4),
    }
    params = train_classifier(
        forward, start, flat, labels, epochs=8, batch=64, rate=1e-2, decay=0.01, seed=0
    )
    assert params["top"] != 4
    eager = np.asarray(forward(params, test))
    compiled = jq.compile(model(forward, params, test), pipeline="int8-static")
    got = np.asarray(compiled(test))
    accuracy = [(scores.argmax(1) == truth).mean() for scores in (eager, got)]
    assert accuracy[0] == accuracy[1] > 0.9
    assert [(c.lhs, c.rhs, c.acc) for c in compiled.audit().contractions] == [
        ("i8", "i8", "i32"),
        ("i8", "i8", "i32"),
    ]


def test_an_activation_without_a_range_still_needs_calibration():
    half = model(lambda p, x: fq(x, range=(-3, 3)) @ weight(p) @ p["w"].T)
    with pytest.raises(UserError, match="calibration"):
        jq.plan(half, pipeline="int8-static", settings={"activations.mode": "static"})


@pytest.mark.parametrize(
    ("pipeline", "format", "scheme"),
    [
        ("int8-dynamic", "int8", "symmetric"),
        ("int8-weight-only", "int4", "asymmetric"),
        ("float", "int8", "asymmetric"),
    ],
)
def test_levels_equal_the_eager_function(pipeline, format, scheme):
    def forward(p, x):
        w = fq(p["w"] * 2, format, scheme=scheme, granularity="per-channel")
        return fq(x, scheme=scheme, granularity="per-token") @ w

    want = np.asarray(forward({"w": W}, X))
    levels = jq.rewrite(model(forward), pipeline=pipeline)
    for level in ("float", "qdq", "integer"):
        (got,) = evaluated(levels[level], X)
        assert np.allclose(got, want, rtol=1e-5, atol=1e-4), level
    # What the model gives is taken, though the pipeline would choose otherwise.
    assert 'composite "jq.fake_quant"' not in levels["float"].text()
    (op,) = jq.plan(model(forward), pipeline=pipeline).ops
    if pipeline != "float":
        assert "given" in op.operands[0].describe()
        assert (op.operands[1].encoding.format, op.operands[1].encoding.scheme) == (format, scheme)


def count(forward, kind, **options):
    text = jq.rewrite(model(forward), pipeline="int8-dynamic", **options)["qdq"].text()
    return text.count(f'composite "{kind}"')


def test_equal_parameters_are_dropped_and_others_kept():
    def twice(first, second):
        def forward(p, x):
            return fq(fq(x, range=first), range=second) @ weight(p)

        return forward

    assert count(twice((-3, 3), (-3, 3)), "jq.quantize") == 1
    assert count(twice((-3, 3), (-2, 2)), "jq.quantize") == 2


def test_what_the_target_lacks_is_declined(tmp_path):
    path = tmp_path / "plain.toml"
    path.write_text('[device]\nproducts = ["int8 x int8"]\n')
    forward = lambda p, x: fq(x, "int4", range=(-3, 3)) @ weight(p)  # noqa: E731
    (op,) = jq.plan(model(forward), target=str(path)).ops
    assert op.decision == "weight-only" and "int4 x int8" in op.reason
    integer = jq.rewrite(model(forward), target=str(path))["integer"].text()
    assert "xi32>" not in integer.split("stablehlo.dot_general")[1].splitlines()[0]


def test_layers_of_a_scan_are_stored_by_layer():
    stacked = RNG.standard_normal((3, 64, 64)).astype(np.float32)

    def forward(p, x):
        def layer(x, w):
            w = fq(w, granularity="per-channel")
            return jnp.tanh(fq(x, granularity="per-token") @ w), None

        return jax.lax.scan(layer, x, p["w"])[0]

    scanned = model(forward, {"w": stacked})
    levels = jq.rewrite(scanned, pipeline="int8-dynamic")
    assert levels["qdq"].weights["w:scale"].shape == (3, 1, 64)
    compiled = jq.compile(scanned, pipeline="int8-dynamic")
    assert [c.lhs for c in compiled.audit().contractions] == ["i8"]
    assert np.allclose(compiled(X), forward({"w": stacked}, X), atol=2e-2)


def test_mx_weights_are_stored_as_mx_and_activations_stay_blocks():
    def forward(p, x):
        return jq.mx_fake_quant(x, "mxfp8_e4m3") @ jq.mx_fake_quant(p["w"], "mxfp4", axis=0)

    compiled = jq.compile(model(forward), pipeline="float")
    (stored,) = compiled.audit().weights
    assert stored.format == "mxfp4"
    assert np.allclose(compiled(X), forward({"w": W}, X), rtol=1e-5, atol=1e-4)


def test_a_tied_weight_keeps_its_float_use():
    def forward(p, x):
        return fq(x, granularity="per-token") @ weight(p), p["w"] + 1

    tied = replace(model(forward), name="tied")
    _, plain = jq.compile(tied, pipeline="int8-dynamic")(X)
    assert np.array_equal(plain, W + 1)


@pytest.mark.parametrize("pipeline", ["float", "int8-dynamic"])
def test_quantizing_twice_is_what_it_is_in_jax(pipeline: str) -> None:
    """A weight in two formats; an activation to fewer bits. It used to end the process."""

    def weights(p, x):
        twice = jq.mx_fake_quant(jq.mx_fake_quant(p["w"], "mxint8", 0), "mxint8", 0)
        return x @ twice + x @ fq(fq(p["w"]), "int4", granularity="per-channel")

    def activations(p, x):
        return fq(fq(x, range=(-2.0, 2.0)), "int4", range=(-1.0, 1.0)) @ p["w"]

    for fn in (weights, activations) if pipeline == "float" else (activations,):
        compiled = jq.compile(model(fn), pipeline=pipeline)
        expected = np.asarray(fn({"w": W}, X))
        np.testing.assert_allclose(np.asarray(compiled(X)), expected, rtol=0, atol=64 * 2e-6)


def test_an_mx_activation_is_not_rounded_again():
    """Nor after a transpose, a pad with zeros or a relu; weights are quantized as ever."""

    def forward(p, x):
        y = jq.mx_fake_quant(x, "mxfp8_e4m3")
        return y @ p["w"], jnp.pad(jax.nn.relu(y), ((0, 1), (0, 0))).T.T @ p["w"]

    given = jq.Model(forward, {"w": W}, (X,), calibration=[(X,)])
    for op in jq.plan(given, pipeline="int8-static").ops:
        assert (op.decision, list(op.operands)) == ("weight-only", [1])
        assert op.note == "the model rounds it to mxfp8_e4m3, which is multiplied as floats"
