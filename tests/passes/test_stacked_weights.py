"""Products of tiles of rows with weights that a lookup takes from a stack."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.formats.base import Encoding, get_format
from jq.formats.tensor import QuantizedTensor
from jq.ir.decisions import facts_of

COUNT, OUT, IN, TILES, ROWS = 3, 40, 64, 4, 16
SETTINGS = {"activations.granularity": "per-block", "activations.block_size": 32}
SETTINGS |= {"activations.scheme": "symmetric"}
CHOSEN = np.array([2, 0, COUNT, 1], np.int32)


def stack():
    kind, shape, rng = "q8_0", (COUNT, OUT, IN), np.random.default_rng(0)
    enc = Encoding(kind, shape, get_format(kind).default_block(shape, -1))
    values = rng.standard_normal(shape, np.float32)
    return QuantizedTensor(enc, get_format(kind).encode(values, enc))


def products(p, x, chosen):
    weight = p["w"].at[chosen].get(mode="clip")
    return jax.lax.dot_general(x, weight, (((2,), (2,)), ((0,), (0,))))


def masked(p, x, chosen):
    y = products(p, x, chosen)
    return jax.nn.silu(jnp.where((chosen < COUNT)[:, None, None], y, 0.0))


def compiled(function, params, chosen=True):
    x = np.random.default_rng(1).standard_normal((TILES, ROWS, IN)).astype(np.float32)
    given = (x, CHOSEN) if chosen else (x,)
    model = jq.Model(function, params, given)
    return x, jq.compile(model, pipeline="int8-dynamic", settings=SETTINGS)


@pytest.mark.parametrize("function", [products, masked])
def test_one_kernel_reads_the_stack(function):
    """A number that is out of the stack is clipped by the model itself, or its tile is 0."""
    params = {"w": stack()}
    x, made = compiled(function, params)
    text = str(made.levels["target"].module)
    assert "_of3_" in text and "stablehlo.gather" not in text
    got = np.asarray(made(x, CHOSEN))
    weight = np.asarray(params["w"], np.float32)[[2, 0, 2, 1]]
    want = np.einsum("tri,toi->tro", x.astype(np.float64), weight)
    largest = np.abs(x).reshape(TILES, ROWS, -1, 32).max(-1)
    sizes = np.abs(weight).reshape(TILES, OUT, -1, 32).sum(-1)
    bound = np.einsum("trb,tob->tro", largest / 127 / 2, sizes) + 1e-4
    if function is masked:
        want[2], bound[2] = 0, 1e-6
        want, bound = want / (1 + np.exp(-want)), 1.1 * bound  # the slope of SiLU
    assert (np.abs(got - want) <= bound).all()


def test_a_batch_of_weights_is_none():
    params = {"w": stack()}

    def function(p, x):
        return jax.lax.dot_general(x, p["w"], (((2,), (2,)), ((0,), (0,))))

    x = np.zeros((COUNT, ROWS, IN), np.float32)
    model = jq.Model(function, params, (x,))
    made = jq.compile(model, pipeline="int8-dynamic", settings=SETTINGS)
    (reason,) = facts_of(made.levels["target"], "no_kernel").values()
    assert "weight of its own" in reason


def test_a_lookup_that_is_summed_over_is_no_weight():
    """A product that sums over the looked-up axis has float operands, as before."""
    params = {"w": stack()}

    def function(p, x):
        return jnp.einsum("toi,rt->roi", p["w"][jnp.array([0, 1])], x[:, :2])

    x = np.zeros((ROWS, IN), np.float32)
    made = jq.compile(jq.Model(function, params, (x,)), pipeline="int8-dynamic", settings=SETTINGS)
    assert "jq_gemv" not in str(made.levels["target"].module)


@pytest.mark.parametrize(
    ("shape", "chosen", "stored"),
    [
        ((96, 64), CHOSEN, False),
        ((96, 64), np.int32(2), True),
        ((6, 16, 64), CHOSEN, True),
        ((6, 16, 64), np.int32(2), False),
        ((2, 3, 8, 64), CHOSEN, False),
    ],
)
def test_what_is_looked_up_is_no_weight_beside_one(shape, chosen, stored):
    """Rows and matrices are activations of the product that reads them, whose own weight is
    quantized."""
    rng = np.random.default_rng(0)
    params = {"table": _q8(rng.standard_normal(shape, np.float32))}
    up = rng.standard_normal((64, 128), np.float32)
    params["up"] = _q8(up.T) if stored else up
    model = jq.Model(
        lambda p, i: p["table"][i] @ (p["up"].T if stored else p["up"]), params, (chosen,)
    )
    ops = jq.compile(model, "int8-dynamic").manifest.ops
    (row,) = [op for op in ops if op["op"] == "dot_general"]
    assert (row["decision"], row["weight"]) == ("integer", "up")


def _q8(values):
    enc = Encoding("q8_0", values.shape, get_format("q8_0").default_block(values.shape, -1))
    return QuantizedTensor(enc, get_format("q8_0").encode(values, enc))
