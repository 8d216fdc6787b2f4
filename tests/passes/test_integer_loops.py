"""Loops and branches in integer-only programs: unrolled, or with codes carried through."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.ir import dtype_of
from jq.ir.oracle.interpreter import interpret
from jq.passes.base import PassContext
from jq.passes.integer.verify_integer import offenders
from jq.passes.prepare.loops import UnrollLoops
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.support.noise import bound
from tests.support.programs import assert_same_bits, evaluated, run_iree

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 8)).astype(np.float32)
PARAMS = {
    "stack": (RNG.standard_normal((3, 8, 8)) / 3).astype(np.float32),
    "v": (RNG.standard_normal((8, 8)) / 3).astype(np.float32),
}


def scan(p, x):
    """Layers with stacked weights; the sums of each are given, too."""

    def layer(x, w):
        return jnp.tanh(x @ w) + x, x.sum(0)

    return jax.lax.scan(layer, x @ p["v"], p["stack"])


def nested(p, x):
    """A loop in a loop, both of known length."""

    def inner(_, x):
        return jax.nn.relu(x @ p["v"]) + 0.1

    return jax.lax.fori_loop(0, 2, lambda i, x: jax.lax.fori_loop(0, 2, inner, x) * 0.5, x)


def until(p, x):
    """A loop that ends on a computed condition: its number of steps is not known."""

    def small(state):
        return (state[0] < 9) & (jnp.abs(state[1]).max() < 4)

    def body(state):
        return state[0] + 1, jax.nn.gelu(state[1] @ p["v"]) + 1.5 * state[1]

    return jax.lax.while_loop(small, body, (0, x))[1] @ p["v"]


def counted(p, x, n):
    return jax.lax.fori_loop(0, n, lambda i, x: jnp.tanh(x @ p["v"]) + 0.5 * x, x)


def branch(p, x):
    y = x @ p["v"]
    one = lambda y: jnp.tanh(y @ p["v"])  # noqa: E731
    return jax.lax.cond(x.sum() > 0, one, lambda y: 2 * y, y) @ p["v"]


def switch(p, x, i):
    functions = [jnp.tanh, jax.nn.softmax, lambda y: y.T.reshape(y.shape)]
    return jax.lax.switch(i, functions, x @ p["v"]) @ p["v"]


def fields(p, x):
    """A branch in a loop."""

    def layer(x, w):
        y = x @ w
        return jax.lax.cond(y.max() > 1, lambda y: y * 0.5, jnp.tanh, y), None

    return jax.lax.scan(layer, x, p["stack"])[0]


def every_second(p, x):
    """The branch of each iteration is known."""
    one, two = (lambda x: jnp.tanh(x @ p["v"])), (lambda x: x * 0.5 + 1)
    return jax.lax.fori_loop(0, 3, lambda i, x: jax.lax.cond(i % 2 == 0, one, two, x), x)


N = [np.int32(n) for n in range(3)]
CASES = {
    "scan": (scan, [(X,), (0.5 * X,)], False),
    "nested": (nested, [(X,)], False),
    "every second": (every_second, [(X,)], False),
    "until": (until, [(X,), (0.3 * X,)], True),
    "counted": (counted, [(X, np.int32(4)), (X, np.int32(1))], True),
    "branch": (branch, [(X,), (-X,)], True),
    "switch": (switch, [(X, n) for n in N], True),
    "branch in a loop": (fields, [(X,), (0.1 * X,)], True),
}
CONTROL = ("stablehlo.while", "stablehlo.case", "stablehlo.if")


@pytest.mark.parametrize("name", CASES)
def test_integer_and_close_to_float(name):
    fn, batches, control = CASES[name]
    model = jq.Model(fn, PARAMS, batches[0], calibration=batches)
    levels = jq.rewrite(model, pipeline="int8-static-integer-only", target="npu-int8")
    program = levels["integer"]
    assert offenders(program) == []
    inside = [op for op in program.walk() if op.operation.block != program.body]
    kinds = {op.operation.name for op in program.walk()}
    assert bool(kinds & set(CONTROL)) == control
    floats = [v for op in inside for v in op.operation.results if dtype_of(v).kind == "f"]
    assert not floats
    reference = [evaluated(levels["float"], *x) for x in batches]
    powers = [max(np.mean(a**2) for a in outputs) for outputs in zip(*reference, strict=True)]
    for x, want in zip(batches, reference, strict=True):
        got = evaluated(program, *x)
        for a, b, power in zip(got, want, powers, strict=True):
            assert np.mean((a - b) ** 2) <= bound(program) * power  # ranges are of all data
        results = [interpret(program, *map(np.asarray, x)), run_iree(levels["target"], list(x))]
        for a, *others in zip(got, *results, strict=True):
            for b in others:
                assert_same_bits(np.asarray(b), a, name)


def test_a_branch_that_no_data_reached_is_named():
    model = jq.Model(branch, PARAMS, (X,), calibration=[(np.abs(X),)])
    with pytest.raises(UserError, match="calibration data did not reach this tensor"):
        jq.rewrite(model, pipeline="int8-static-integer-only", target="npu-int8")


def test_a_long_loop_stays_one():
    def fn(p, x):
        return jax.lax.fori_loop(0, 65, lambda i, x: 0.9 * jnp.tanh(x @ p["v"]), x)

    model = jq.Model(fn, PARAMS, (X,), calibration=[(X,)])
    levels = jq.rewrite(model, pipeline="int8-static-integer-only", target="npu-int8")
    (loop,) = (op for op in levels["integer"].walk() if op.operation.name == "stablehlo.while")
    assert {str(dtype_of(v)) for v in loop.results} == {"int32", "int16"}


def test_stacks_that_are_written_one_after_the_other_are_joined_each_for_itself():
    """An update of a joined stack changes one row of it, and takes none of an earlier stack."""

    def f(_, x, row):
        for k in range(12):

            def body(i, x, k=k):
                return jax.lax.dynamic_update_slice(x, row + 4 * k + i, (i, 0))

            x = jax.lax.fori_loop(0, 4, body, x)
        return jax.lax.dynamic_update_slice(x, row - 1, (2, 0))

    x, row = np.zeros((4, 2), np.float32), np.ones((1, 2), np.float32)
    program = jq.trace(jq.Model(f, {}, (x, row))).program.clone()
    assert UnrollLoops().run(
        program, PassContext(QuantPlan((), {}), Settings(), load_target("llvm-cpu"))
    )
    (found,) = interpret(program, x, row)
    np.testing.assert_array_equal(found[:, 0], [45, 46, 0, 48])
