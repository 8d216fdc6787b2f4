"""The module that `--emit qdq` writes carries quantized types between ops, and is read back."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jq
from jq.frontends.model import Model
from jq.ir import parse_module, run_passes
from jq.ir.build import string_attr
from jq.ir.oracle.xla import XlaExecutable
from jq.models.zoo.digits_cnn import build

PASSES = "stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo"
SUM = "a sum with a float tensor"


@pytest.fixture(scope="module")
def digits():
    """A part of its inputs, and its levels."""
    model = build()
    x = np.random.default_rng(0).uniform(0, 1, (4, 8, 8, 1)).astype(np.float32)
    small = Model(model.fn, model.params, (x,), calibration=[(x,)])
    return x, jq.rewrite(small, pipeline="int8-static", settings={"recovery": False})


def test_every_value_between_ops_has_a_type(digits):
    from suites.typed_values import emitted, share

    found = share(emitted(digits[1]["qdq"]))
    assert (found.typed, found.all) == (13, 13), found


def test_what_has_none_says_why():
    """Scores of attention are divided by a number, which their scale takes; softmax is float."""
    from suites.typed_values import emitted, share

    def fn(p, x):
        q, k, v = (x @ p[n] for n in "qkv")
        y = jax.nn.softmax(q @ k.T / np.float32(np.sqrt(16))) @ v
        y = jax.nn.gelu(y @ p["q"]) @ p["k"] + x
        return y @ p["v"]

    rng = np.random.default_rng(0)
    params = {n: rng.standard_normal((16, 16)).astype(np.float32) / 4 for n in "qkv"}
    x = rng.standard_normal((8, 16)).astype(np.float32)
    levels = jq.rewrite(jq.Model(fn, params, (x,), calibration=[(x,)]), pipeline="int8-static")
    written = emitted(levels["qdq"])
    found = share(written)
    assert found.all - found.typed == sum(found.why.values())
    assert set(found.why) == {"inside softmax", "inside a function of single elements", SUM}
    assert found.why[SUM] == 1 and f"  1 {SUM}: 1 add" in str(found)
    (factor,) = (op for op in written.walk() if string_attr(op, "jq.typed") == "factor")
    assert "!quant.uniform<i32" in str(factor.operation.results[0].type)
    again = jq.rewrite(jq.trace(written.materialize()), pipeline="int8-static")["integer"]
    (got,), (want,) = (XlaExecutable(p)(x) for p in (again, levels["integer"]))
    np.testing.assert_array_equal(got, want)
    written.module = parse_module(written.text())
    run_passes(written.module, f"func.func({PASSES})")
    (got,), (want,) = (XlaExecutable(p)(x) for p in (written, levels["qdq"]))
    assert np.abs(got - want).max() <= 4 * np.abs(want).max() / 127


def test_their_encodings_can_be_asked_for(digits):
    from suites.typed_values import emitted

    found = dict[str, set[str]]()
    for level in (digits[1]["qdq"], emitted(digits[1]["qdq"])):
        for op in level.walk():
            for value in op.operation.results:
                enc = jq.encoding(level, value)
                how = "none" if enc is None else f"{enc.format} {enc.scheme} {enc.granularity}"
                found.setdefault(op.operation.name.removeprefix("stablehlo."), set()).add(how)
    activations, weights = "int8 asymmetric per-tensor", "int8 symmetric per-channel"
    assert found["reduce_window"] == {activations}
    assert found["reshape"] >= {activations} and activations in found["maximum"]
    assert weights in found["bitcast_convert"] and found["convolution"] == {"none"}


def test_bytecode_is_read_back_to_the_same_bits(digits, tmp_path):
    from suites.typed_values import emitted

    x, levels = digits
    path = tmp_path / "qdq.mlirbc"
    with path.open("wb") as file:
        emitted(levels["qdq"]).materialize().operation.write_bytecode(file)
    assert b"jq.typed" in path.read_bytes()
    again = jq.rewrite(path, pipeline="int8-static")
    for level in ("qdq", "integer"):
        (got,), (want,) = (XlaExecutable(each[level])(x) for each in (again, levels))
        np.testing.assert_array_equal(got, want)


def test_stablehlo_computes_the_same(digits):
    """By its own definition of these types, but for biases that are rounded to steps of sums."""
    from suites.typed_values import emitted

    x, levels = digits
    program = emitted(levels["qdq"])
    program.module = parse_module(program.text())
    run_passes(program.module, f"func.func({PASSES})")
    (got,), (want,) = (XlaExecutable(p)(x) for p in (program, levels["qdq"]))
    steps = np.abs(want).max() / 127
    assert np.abs(got - want).max() <= 2 * steps
    assert np.median(np.abs(got - want)) <= steps / 8
