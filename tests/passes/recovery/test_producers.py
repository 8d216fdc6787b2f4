"""Factors that move into weights: the value is multiplied exactly, or nothing is touched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.passes.recovery._producers import edits_for
from tests.passes.recovery.models import normal
from tests.support.programs import evaluated

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 6, 16)).astype(np.float32)
FACTORS = np.exp2(RNG.integers(-3, 4, 16)).astype(np.float32)


def conv(x, w, groups=1):
    numbers = ("NHC", "HIO", "NHC")
    return jax.lax.conv_general_dilated(
        x, w, (1,), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def heads(x):
    return x.reshape(2, 6, 4, 4)


def attention(p, x):
    probabilities = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", heads(x), heads(x)))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", probabilities, heads(x @ p["w"] + p["b"]))
    return mixed.reshape(2, 6, 16)


def fused(p, x):
    """The last of three parts of one product."""
    parts = x @ p["three"] + jnp.tile(p["b"], 3)
    return jnp.tanh(parts[..., :16]) + jnp.tanh(parts[..., 16:32]), parts[..., 32:]


POSSIBLE = {
    "dense": lambda p, x: x @ p["w"] + p["b"],
    "transposed": lambda p, x: (p["w"].T @ x.transpose(0, 2, 1)[0]).T[None] + p["b"],
    "relu": lambda p, x: jnp.maximum(x @ p["w"] + p["b"], 0),
    "scaled": lambda p, x: (x * p["b"]) / (1 + jnp.abs(x)),
    "difference": lambda p, x: x @ p["w"] - x @ p["v"],
    "negative": lambda p, x: -(x @ p["w"]),
    "batched": lambda p, x: jnp.einsum("bsd,bde->bse", x, p["two"]),
    "convolution": lambda p, x: jnp.maximum(conv(x, p["k"]) + p["b"], 0),
    "depthwise": lambda p, x: conv(x, p["d"], 16),
    "fused": lambda p, x: fused(p, x)[1],
}
IMPOSSIBLE = {
    "attention": attention,
    "input": lambda p, x: x + p["b"],
    "gelu": lambda p, x: jax.nn.gelu(x @ p["w"]),
    "shared weight": lambda p, x: x @ p["w"] + jnp.tanh(x) @ p["w"],
    "square": lambda p, x: jnp.square(x @ p["w"]),
    "maximum": lambda p, x: jnp.maximum(x @ p["w"], 1),
}
PARAMS = {
    "w": normal(16, 16),
    "v": normal(16, 16),
    "b": normal(16),
    "two": normal(2, 16, 16),
    "k": normal(3, 16, 16),
    "d": normal(3, 1, 16),
    "three": normal(16, 48),
    "last": normal(16, 5),
}


def program_of(f, further=lambda p, x: 0.0):
    """`f` as the operand of a product, with whatever else."""

    def whole(p, x):
        return {"y": f(p, x) @ p["last"], "further": further(p, x)}

    program = trace(Model(whole, PARAMS, (X,)))
    op = next(op for op in program.walk() if program.weight("last") in list(op.operands))
    return program, op.operands[0]


def factor_of(value):
    return FACTORS.reshape([1] * (len(value.type.shape) - 1) + [16])


@pytest.mark.parametrize("name", POSSIBLE)
def test_the_value_is_multiplied_to_the_bit(name):
    further = (lambda p, x: fused(p, x)[0]) if name == "fused" else (lambda p, x: 0.0)
    program, value = program_of(POSSIBLE[name], further)
    edits = edits_for(program, value, factor_of(value), 1)
    assert edits is not None
    edits.apply("test")
    program.weights["last"] = program.weights["last"] / FACTORS[:, None]
    program.verify()
    before, _ = program_of(POSSIBLE[name], further)
    for a, b in zip(evaluated(before, X), evaluated(program, X), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_is_left_alone(name):
    program, value = program_of(IMPOSSIBLE[name])
    text = program.text()
    assert edits_for(program, value, factor_of(value), 1) is None
    assert program.text() == text


def test_another_reader_wants_the_value_as_it_was():
    program, value = program_of(POSSIBLE["dense"], lambda p, x: (x @ p["w"] + p["b"]).sum())
    readers = sum(1 for _ in value.uses)
    if readers == 1:
        pytest.skip("the tracer keeps both computations apart")
    assert edits_for(program, value, factor_of(value), 1) is None


def test_parts_that_overlap_are_left_alone():
    def overlapping(p, x):
        parts = x @ p["three"]
        return jnp.tanh(parts[..., 20:36]), parts[..., 32:]

    program, value = program_of(
        lambda p, x: overlapping(p, x)[1], lambda p, x: overlapping(p, x)[0]
    )
    assert edits_for(program, value, factor_of(value), 1) is None
