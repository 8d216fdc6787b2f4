"""Ranges that a model gives reach the products after ops that keep its codes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.ir import parse_module, run_passes
from jq.ir.ops.dataflow import Encodings
from jq.ir.ops.lattice import CONFLICT, FLOAT, Encoded
from jq.ir.quantized.markers import to_quant_types
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((2, 8, 8)) * 1.5).astype(np.float32)
W = RNG.standard_normal((8, 3)).astype(np.float32)
FLAG = np.array(True)


ROWS = jnp.array([9, 3, 1, 4, 0, 8, 2, 6])


def fq(x, scheme="symmetric"):
    return jq.fake_quant(x, range=(-3.0, 2.0), scheme=scheme)


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 1), (1, 2, 1), "SAME")


def looped(x):
    """A carry that starts as zeros and holds codes from the first round on."""
    zeros = jnp.zeros_like(x)
    return jax.lax.fori_loop(0, 3, lambda i, c: jnp.maximum(c, jnp.roll(fq(x), i, 1)), zeros)


KEEPING = {
    "pool": lambda x, on: pool(fq(x)),
    "pad": lambda x, on: jnp.pad(fq(x, "asymmetric"), ((0, 0), (1, 2), (0, 0))),
    "concatenate": lambda x, on: jnp.concatenate([fq(x)[:, :3], fq(x)[:, 5:]], 1),
    "relu": lambda x, on: jax.nn.relu(fq(x, "asymmetric")),
    "relu6": lambda x, on: jax.nn.relu6(fq(x)),
    "repeat": lambda x, on: jnp.repeat(fq(x), 2, axis=1),
    "flip": lambda x, on: fq(x)[:, ::-1],
    "take": lambda x, on: fq(x)[:, jnp.array([0, 3, 3, 1])],
    "select": lambda x, on: jnp.where(x > 0, fq(x), 0),
    "update": lambda x, on: jax.lax.dynamic_update_slice(fq(x), fq(x)[:, 5:7], (0, 2, 0)),
    "scatter": lambda x, on: jnp.zeros((2, 11, 8)).at[:, ROWS].set(fq(x, "asymmetric")),
    "scatter of maxima": lambda x, on: fq(x).at[:, jnp.array([6, 1])].max(fq(x)[:, :2]),
    "extreme": lambda x, on: jnp.max(fq(x).reshape(2, 2, 4, 8), 2),
    "times": lambda x, on: fq(x) * 0.3,
    "over": lambda x, on: fq(x, "asymmetric") / 3,
    "clamp": lambda x, on: jax.lax.clamp(0.0, fq(x), 8.0),
    "mirrored": lambda x, on: jnp.negative(fq(x, "asymmetric"))[:, ::-1],
    "absolute": lambda x, on: jnp.abs(fq(x)),
    "sorted": lambda x, on: -jnp.sort(-fq(x, "asymmetric"), 1),
    "the largest": lambda x, on: jax.lax.top_k(fq(x).swapaxes(1, 2), 4)[0].swapaxes(1, 2),
    "a factor for each row": lambda x, on: fq(x) * (np.arange(8, dtype=np.float32)[:, None] + 0.5),
    "branch": lambda x, on: jax.lax.cond(on, lambda y: y[:, ::-1], lambda y: y, fq(x)),
    "loop": lambda x, on: looped(x),
    "tokens": lambda x, on: jax.nn.relu(jq.fake_quant(x, granularity="per-token"))[:, ::-1],
}


def model(fns):
    def forward(p, x, on):
        return [f(x, on) @ jq.fake_quant(p["w"], granularity="per-channel") for f in fns]

    return jq.Model(forward, {"w": W}, (X, FLAG)), forward({"w": W}, X, FLAG)


def test_codes_go_through_and_nothing_is_quantized_again():
    given, want = model(KEEPING.values())
    plan = jq.plan(given, pipeline="int8-dynamic")
    products = [op for op in plan.ops if op.op == "dot_general"]
    kinds = {name: op.operands[0].kind for name, op in zip(KEEPING, products, strict=True)}
    assert [name for name, kind in kinds.items() if kind != "given"] == []
    assert {op.decision for op in products} == {"integer"}
    program = jq.rewrite(given, pipeline="int8-dynamic")["integer"]
    for name, got, ref in zip(KEEPING, evaluated(program, X, FLAG), want, strict=True):
        np.testing.assert_allclose(got, ref, rtol=1e-5, atol=2e-5, err_msg=name)


def test_a_bound_between_two_codes_is_rounded_with_the_parameters_of_the_others():
    given, (want,) = model([lambda x, on: jnp.clip(fq(x), -1, 1)])
    (op,) = jq.plan(given).ops
    scale = np.float32(3) / 127
    assert op.operands[0].parameters == (scale, None)
    (got,) = evaluated(jq.rewrite(given)["integer"], X, FLAG)
    step = scale / 2 * np.abs(np.asarray(jq.fake_quant(W, granularity="per-channel"))).sum(0)
    assert (np.abs(got - want) <= step).all()
    (exact,) = evaluated(jq.rewrite(given, pipeline="float")["integer"], X, FLAG)
    np.testing.assert_allclose(exact, want, rtol=1e-5, atol=2e-5)  # there it stays what it is


def test_the_lattice():
    """Numbers of two encodings, of one and a number that it does not hold, of none."""

    def forward(p, x, on):
        other = jq.fake_quant(x, range=(-1.0, 1.0))
        two = jnp.concatenate([fq(x), other])
        bounds = [jnp.pad(fq(x), 1, constant_values=c) for c in (0.01, jnp.nan)]
        mixed = jnp.concatenate([fq(x), fq(x).sum(0, keepdims=True)])
        return fq(x)[::-1], two, *bounds, mixed, fq(x) * -1.0, jnp.sin(x)

    program = jq.rewrite(jq.Model(forward, {}, (X, FLAG)), pipeline="float")["float"]
    encodings = Encodings(program)
    states = [encodings.of(v) for v in program.returned]
    assert isinstance(states[0], Encoded) and states[0].encoding.shape == X.shape
    assert states[1:] == [CONFLICT] * 4 + [FLOAT] * 2


def test_anybody_can_ask_how_a_value_is_quantized():
    given, _ = model([KEEPING["pool"]])
    program = jq.rewrite(given, pipeline="int8-dynamic")["qdq"]
    (product,) = [op for op in program.walk() if op.operation.name == "stablehlo.dot_general"]
    pooled, weight = (jq.encoding(program, v) for v in product.operands)
    assert pooled is not None and (pooled.format, pooled.shape) == ("int8", (2, 4, 8))
    assert weight == jq.encoding(program, "w") and weight is not None and weight.block == (0, 1)
    assert jq.encoding(program, product.result) is None
    assert jq.encoding(program, "x") is None
    with pytest.raises(jq.UserError, match="encoding takes a program: 'int8'"):
        jq.encoding("int8", (4, 4))  # type: ignore[arg-type]


def test_quantized_types_are_read_back_to_the_same_bits():
    """Every op above, in the module that `--emit qdq` writes. StableHLO takes it apart, too, but
    for scales along an axis that is not the last."""
    whole = {name: fn for name, fn in KEEPING.items() if name != "a factor for each row"}
    given, _ = model(whole.values())
    levels = jq.rewrite(given, pipeline="int8-dynamic")
    program = levels["qdq"].clone()
    to_quant_types(program)
    again = jq.rewrite(jq.trace(program.materialize()), pipeline="int8-dynamic")
    pairs = zip(*(evaluated(p["integer"], X, FLAG) for p in (again, levels)), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    program.module = parse_module(program.text())
    passes = "stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo"
    run_passes(program.module, f"func.func({passes})")
    for name, got, want in zip(
        whole, *(evaluated(p, X, FLAG) for p in (program, levels["qdq"])), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5, err_msg=name)


def test_codes_that_are_read_twice_are_looked_at_once() -> None:
    """There are 2^60 ways along the chain, and no dequantize at its end."""

    def doubled(_: object, x: np.ndarray) -> np.ndarray:
        for _ in range(60):
            x = jnp.concatenate([x, x])[1:4]
        return x

    program = jq.trace(jq.Model(doubled, {}, (np.ones(3, np.int8),))).program
    assert jq.encoding(program, program.body.arguments[0]) is None
