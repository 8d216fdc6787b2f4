"""`weights.emit`: codes, floats equal to them, or quantized types; never a silent loss."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.formats import NUMPY, get_format
from jq.ir import parse_module, run_passes
from jq.ir.encodings import encoding_in, read_encodings
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
W = RNG.standard_normal((64, 33)).astype(np.float32)
X = RNG.standard_normal((3, 64)).astype(np.float32)
MODEL = jq.Model(lambda p, x: x @ p["w"], {"w": W}, (X,))


def levels(pipeline="int8-weight-only", **settings):
    return jq.rewrite(MODEL, pipeline=pipeline, settings={"min_elements": 1, **settings})


@pytest.mark.parametrize("pipeline", ["int8", "int4", "fp8", "mxfp4"])
def test_dequantized_is_a_float_constant_equal_to_the_decoded_data(pipeline):
    name = f"{pipeline}-weight-only"
    stored = levels(name)["target"]
    from_codes = levels(name)["qdq"]
    plain = levels(name, **{"weights.emit": "dequantized"})["integer"]  # kernels pack it
    (array,) = plain.weights.values()
    enc = encoding_in(from_codes.encodings["w"])
    parts = {k: from_codes.weights[f"w:{k}"] for k in from_codes.encodings["w"]["parts"]}

    assert np.array_equal(array, get_format(enc.format).decode(NUMPY, parts, enc))
    assert array.dtype == np.float32 and not plain.encodings
    assert stored.encodings


def test_dequantized_has_no_integers_to_multiply():
    with pytest.raises(jq.UserError, match="leaves no integers to multiply"):
        levels("int8-dynamic", **{"weights.emit": "dequantized"})


TYPED = [
    {"weights.granularity": "per-channel"},
    {"weights.granularity": "per-tensor"},
    {"weights.scheme": "asymmetric"},
    {"weights.format": "int4"},
    {
        "weights.format": "uint8",
        "weights.scheme": "asymmetric",
        "weights.granularity": "per-tensor",
    },
]


@pytest.mark.parametrize("settings", TYPED, ids=str)
def test_quant_types_say_the_same(settings):
    found = levels(**settings, **{"weights.emit": "quant-type"})
    text = found["qdq"].text()
    assert "!quant.uniform" in text and "uniform_dequantize" in text
    module = parse_module(text)  # the digits of the text are enough
    run_passes(module, "func.func(stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo)")
    program = found["qdq"].clone()
    program.module = module
    (got,) = evaluated(program, X)
    (want,) = evaluated(levels(**settings)["qdq"], X)
    assert np.array_equal(got, want)


REFUSED = [
    ({"weights.format": "mxfp4"}, "mxfp4 is not an affine integer"),
    ({"weights.granularity": "per-block"}, r"its scales have blocks \(32, 1\)"),
]


@pytest.mark.parametrize(("settings", "reason"), REFUSED)
def test_what_the_types_cannot_hold_is_refused(settings, reason):
    with pytest.raises(jq.UserError, match=reason):
        levels(**settings, **{"weights.emit": "quant-type"})


def test_a_module_lists_its_encodings_through_every_move():
    def fn(p, x):
        a = jnp.concatenate([p["w"], p["w"][:8]], 0).reshape(72, 3, 11).transpose(1, 0, 2)
        return jnp.einsum("bk,hkd->bhd", jnp.concatenate([x, x[:, :8]], 1), a)

    model = jq.Model(fn, {"w": W}, (X,))
    found = jq.rewrite(model, pipeline="int8-weight-only", settings={"min_elements": 1})
    for level in ("qdq", "integer", "target"):
        program = found[level]
        listed = read_encodings(parse_module(program.text()))
        assert {n: e.encoding for n, e in listed.items()} == {
            n: encoding_in(e) for n, e in program.encodings.items()
        }
    assert "jq.encodings" not in found["float"].text()
    (want,), (got,) = (evaluated(found[level], X) for level in ("float", "integer"))
    # Each weight is off by half a step at most, a step 1 / 127 of the largest.
    terms = np.abs(np.concatenate([X, X[:, :8]], 1)).sum(1).max()
    assert np.abs(got - want).max() <= terms * np.abs(W).max() / 127 / 2 * (1 + 1e-5)
