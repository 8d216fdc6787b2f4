"""Weights in another float type than the product that reads them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jq

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 64)).astype(np.float32)
W = RNG.standard_normal((64, 8)).astype(np.float32)


def planned(fn, weight, pipeline="int8-dynamic"):
    model = jq.Model(fn, {"w": weight}, (X,))
    compiled = jq.compile(model, pipeline, settings={"min_elements": 1})
    return model, compiled


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_a_narrow_weight_of_a_wide_product_is_integer(dtype):
    model, compiled = planned(lambda p, x: x @ p["w"], jnp.asarray(W, dtype))
    (product,) = compiled.audit().contractions
    assert (product.lhs, product.rhs, product.acc) == ("i8", "i8", "i32")
    assert jq.compare(model, compiled).outputs[0].sqnr_db > 35


def test_a_weight_that_is_rounded_on_the_way_is_not_the_weight():
    """Rounding the values to fp8 is part of the model: its codes are the weight."""

    def fn(p, x):
        return x @ p["w"].astype(jnp.float8_e4m3fn).astype(jnp.float32)

    model, compiled = planned(fn, W, "int8-weight-only")
    assert jq.compare(model, compiled).outputs[0].sqnr_db > 100
    (op,) = jq.plan(model, settings={"min_elements": 1}).ops
    (weight,) = op.operands.values()
    assert weight.stored and weight.encoding.format == "float8_e4m3fn"


def test_a_weight_that_is_already_narrow_is_left_alone():
    weight = jnp.asarray(W, jnp.float8_e4m3fn)
    model = jq.Model(lambda p, x: x @ p["w"].astype(jnp.float32), {"w": weight}, (X,))
    (op,) = jq.plan(model).ops
    assert (op.decision, op.reason) == ("weight-only", "float8_e4m3fn has no integer product")


def test_codes_that_the_model_computes_meet_a_float():
    def fn(p, x):
        codes = jq.fake_quant(x, "int8", granularity="per-token", scheme="asymmetric")
        return codes @ jnp.tanh(p["w"] * x[0, 0])

    model, compiled = planned(fn, W)
    assert jq.compare(model, compiled).outputs[0].sqnr_db > 100
