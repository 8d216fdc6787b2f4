"""Scatters of every kind through IREE, bit by bit as XLA has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import jq
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext, make_pass, run_all
from jq.passes.iree_mends.scatters.plain_scatters import PlainScatters
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.passes.drawn_scatters import Drawn, program_text, scatters
from tests.support.drawn import random_example
from tests.support.texts import load, run_iree

MANY = 36  # scatters to a program


def lowered(text: str):
    program = load(text)
    cx = PassContext(QuantPlan((), {}), Settings(), load_target("llvm-cpu"))
    run_all([make_pass(name, {}) for name in ("plain-scatters", "plain-unsigned")], program, cx)
    assert not [op for op in program.walk() if PlainScatters().finds(op)]
    return program


def are_those_of_xla(cases: list[Drawn]) -> None:
    text, inputs = program_text(cases), [a for case in cases for a in case.arrays]
    want = XlaExecutable(load(text))(*inputs)
    got = run_iree(lowered(text), *inputs)
    what = [case.what for case in cases for _ in range(case.results)]
    for ours, theirs, case in zip(got, want, what, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=case)


def many(operands: int, count: int) -> st.SearchStrategy[list[Drawn]]:
    return st.lists(scatters(operands), min_size=count, max_size=count)


@random_example(many(1, MANY))
def test_one_operand(child, cases, seed):
    child.call(are_those_of_xla, cases)


@random_example(many(2, MANY // 4))
def test_two_operands(child, cases, seed):
    child.call(are_those_of_xla, cases)


ROWS = """(%x: tensor<4x2xf32>, %i: tensor<3x1xi32>, %u: tensor<3x2xf32>) -> tensor<4x2xf32> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.FUNCTION %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4x2xf32>, tensor<3x1xi32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32> }"""


@pytest.mark.parametrize("function", ["add", "multiply", "maximum", "minimum"])
def test_what_is_outside_changes_no_bit(function):
    """Minus zero, infinities and NaN stay what they are."""
    x = np.array([[-0.0, 0.0], [np.inf, -np.inf], [np.nan, 1e-30], [3e38, -3e38]], np.float32)
    program = lowered(ROWS.replace("FUNCTION", function))
    (got,) = run_iree(program, x, np.array([[-1], [4], [99]], np.int32), np.full((3, 2), 7.0, "f4"))
    np.testing.assert_array_equal(got.view(np.int32), x.view(np.int32))


def test_one_place_of_each_row():
    """Positions along several axes, of which one is counted and the other is the data's."""

    def fn(_, x, i, u):
        return jnp.put_along_axis(x, i, u, 1, inplace=False)

    x, u = (np.arange(n, dtype=np.float32).reshape(7, -1) for n in (35, 7))
    at = np.array([[0], [4], [-1], [-5], [5], [-6], [99]], np.int32)
    got = jq.compile(jq.Model(fn, {}, (x, at, u)), "float")(x, at, u)
    np.testing.assert_array_equal(got, jax.jit(fn)({}, x, at, u))


def rounded_sine(v):
    return jnp.round(jnp.sin(v) * 8)


@pytest.mark.parametrize("i", [np.array([4, 1]), np.array([1, 1, 3]), slice(1, 4)])
def test_a_function_that_is_more_than_arithmetic(i):
    """A place that is there twice has the function of the function."""

    def fn(_, x):
        return x.at[i].apply(rounded_sine)

    x = np.linspace(-3, 3, 30, dtype=np.float32).reshape(6, 5)
    got = jq.compile(jq.Model(fn, {}, (x,)), "float")(x)
    np.testing.assert_array_equal(got, fn({}, jnp.asarray(x)))


@pytest.mark.parametrize("fn", [jnp.exp, jnp.log, jnp.sqrt, jax.lax.rsqrt, jnp.tanh])
def test_functions_of_the_processor_need_no_loop(fn):
    i = np.array([4, 1, 1], np.int32)

    def applied(_, x):
        return x.at[i].apply(fn)

    x = np.linspace(0.1, 3, 30, dtype=np.float32).reshape(6, 5)
    model = jq.Model(applied, {}, (x,))
    ops = [op.operation.name for op in jq.rewrite(model, pipeline="float")["target"].walk()]
    assert "stablehlo.scatter" in ops and "stablehlo.while" not in ops
    got = jq.compile(model, "float")(x)
    np.testing.assert_allclose(got, applied({}, jnp.asarray(x)), rtol=1e-6, atol=1e-6)


WHOLE = """(%x: tensorKIND, %i: tensor<0xi32>, %u: tensorKIND) -> tensorKIND {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = AXES>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.subtract %b, %a : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensorKIND, tensor<0xi32>, tensorKIND) -> tensorKIND
  return %y : tensorKIND }"""


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_a_window_of_all_there_is(shape):
    kind = f"<{'x'.join([*map(str, shape), 'f32'])}>"
    text = WHOLE.replace("KIND", kind).replace("AXES", str(list(range(len(shape)))))
    x, u = np.full(shape, 3, np.float32), np.full(shape, 5, np.float32)
    (got,) = run_iree(lowered(text), x, np.zeros(0, np.int32), u)
    np.testing.assert_array_equal(got, u - x)
