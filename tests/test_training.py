"""`jq.quantized`: the function that is trained is the one that is compiled."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError

RNG = np.random.default_rng(0)


def arrays(*shape, scale=1.0):
    return (scale * RNG.standard_normal(shape)).astype(np.float32)


def mlp(params, x):
    h = jax.nn.relu(x @ params["a"]["kernel"] + params["a"]["bias"])
    return {"scores": h @ params["b"]["kernel"]}


PARAMS = {
    "a": {"kernel": arrays(64, 96, scale=0.12), "bias": arrays(96)},
    "b": {"kernel": arrays(96, 32, scale=0.1)},
}
DATA = [(arrays(16, 64),) for _ in range(3)]
MLP = jq.Model(mlp, PARAMS, DATA[0], calibration=DATA)


def convolutions(params, x):
    dims = ("NHWC", "HWIO", "NHWC")
    h = jax.lax.conv_general_dilated(x, params["k"], (1, 1), "SAME", dimension_numbers=dims)
    h = jax.nn.relu(h * params["gain"])
    return h.mean((1, 2)) @ params["w"]


CNN = jq.Model(
    convolutions,
    {"k": arrays(3, 3, 4, 8, scale=0.2), "gain": arrays(8), "w": arrays(8, 16, scale=0.3)},
    (arrays(2, 8, 8, 4),),
    calibration=[(arrays(2, 8, 8, 4),)],
)


def scan(params, x):
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum()), x, params["layers"])


SCAN = jq.Model(scan, {"layers": arrays(3, 32, 32, scale=0.2)}, (arrays(4, 32),))


@pytest.mark.parametrize(
    ("model", "pipeline"),
    [
        (MLP, "int8-static"),
        (MLP, "int8x16-static"),
        (MLP, "int8-dynamic"),
        (MLP, "int4-weight-only"),
        (MLP, "nvfp4"),
        (MLP, "bf16"),
        (CNN, "int8-static"),
        (SCAN, "int8-dynamic"),
    ],
)
def test_the_artifact_computes_what_is_trained(model, pipeline):
    """The sums of floats alone may differ: 1e-5 of the largest output is 50 units in its last
    place, where a code of 8 bits that differs moves outputs by 1e-3. Of 16 bits a sum may turn one,
    which is allowed in three operands."""
    fn, params = jq.quantized(model, pipeline)
    moved = {n: p * np.float32(1.01) for n, p in params.items()}
    inputs = model.example_inputs
    trained = jq.Model(fn, moved, inputs, calibration=model.calibration)
    compiled = jq.compile(trained, pipeline, measure=False)
    want = jax.tree.leaves(jax.jit(fn)(moved, *inputs))
    codes = 0.0
    if pipeline == "int8x16-static":
        step = moved["b/kernel:0:high"] / (2**15 - 1)
        codes = 3 * float(step * jnp.abs(moved["b/kernel"]).max())
    for got, wanted in zip(jax.tree.leaves(compiled(*inputs)), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max() + codes)
    decisions = {op.decision for op in jq.plan(model, pipeline=pipeline).ops}
    assert {op.decision for op in compiled.plan.ops} == decisions


def test_integer_only_is_within_a_step_of_its_output():
    """Integers are rounded between ops where the function rounds floats."""
    fn, params = jq.quantized(MLP, "int8-static-integer-only")
    trained = jq.Model(fn, params, DATA[0], calibration=DATA)
    compiled = jq.compile(trained, "int8-static-integer-only", measure=False)
    want = np.asarray(fn(params, *DATA[0])["scores"])
    step = (want.max() - want.min()) / 255
    assert np.abs(compiled(*DATA[0])["scores"] - want).max() <= 1.5 * step


def test_training_lowers_the_loss_of_few_bits():
    wanted = mlp(PARAMS, *DATA[0])["scores"]
    fn, params = jq.quantized(MLP, "int8-static", settings={"weights.format": "int2"})

    def loss(params):
        return jnp.square(fn(params, *DATA[0])["scores"] - wanted).mean()

    @jax.jit
    def step(params):
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, jax.grad(loss)(params))

    before = float(loss(params))
    for _ in range(60):
        params = step(params)
    assert float(loss(params)) < before / 2


def test_ranges_are_learned_by_what_they_cut_off():
    fn, params = jq.quantized(MLP, "int8-static")
    params["b/kernel:0:high"] = params["b/kernel:0:high"] / 4
    gradient = jax.grad(lambda p: fn(p, *DATA[0])["scores"].sum())(params)
    assert float(gradient["b/kernel:0:high"]) != 0


def test_a_model_that_is_quantized_is_refused():
    def fn(params, x):
        return jq.fake_quant(x) @ jq.fake_quant(params["w"], granularity="per-channel")

    model = jq.Model(fn, {"w": arrays(64, 64)}, (arrays(8, 64),))
    with pytest.raises(UserError, match="quantized already"):
        jq.quantized(model, "int8-dynamic")


def test_names_and_settings_are_refused_before_tracing():
    with pytest.raises(UserError, match="unknown pipeline"):
        jq.quantized(MLP, "int8-statik")


def draws(params, x):
    """The draws are the whole result but for rounding; their counters have 64 bits."""
    return x @ params + jax.random.normal(jax.random.key(3), (4, 4))


def counts(params, x):
    return x @ params + (jnp.arange(4) + jnp.ceil(x).astype(int)).astype(jnp.float32)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("forward", "x64"), [(draws, False), (counts, False), (counts, True)])
def test_integers_of_64_bits_give_no_warnings(forward, x64):
    x, weight = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    model = jq.Model(forward, weight, (x,), calibration=[(x,)], x64=x64)
    fn, params = jq.quantized(model)
    np.testing.assert_allclose(fn(params, x), forward(weight, x), rtol=0, atol=0.1)


def test_bits_of_64_bits_are_refused():
    """JAX has 32 of them."""
    x = np.eye(4, dtype=np.float32)

    def forward(params, x):
        counts = jax.lax.bitcast_convert_type(jnp.arange(4), jnp.int32)  # [4, 2]
        return x @ params + counts[:, 0].astype(jnp.float32)

    with pytest.raises(UserError, match="cannot be trained: bits of 64-bit numbers"):
        jq.quantized(jq.Model(forward, x, (x,), calibration=[(x,)], x64=True))


def test_what_it_takes_and_gives_is_what_the_model_does():
    """A tuple with names, a number of Python, and a key."""
    Pair = namedtuple("Pair", "y noise")
    inputs = (arrays(2, 8), True, jax.random.key(0))

    def forward(params, x, chosen, key):
        y = jnp.where(chosen, x @ params, 0.0)
        return Pair(y, jax.random.normal(key, (2,)))

    weight = arrays(8, 4)
    fn, params = jq.quantized(jq.Model(forward, weight, inputs), "int8-weight-only")
    found = fn(params, *inputs)
    assert type(found) is Pair
    np.testing.assert_allclose(found.noise, forward(weight, *inputs).noise, rtol=1e-6)
    np.testing.assert_allclose(found.y, inputs[0] @ weight, rtol=1e-5, atol=1e-5)
    assert not fn(params, inputs[0], False, inputs[2]).y.any()
