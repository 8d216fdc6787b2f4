"""Programs that are long: loops that Python unrolled, hundreds of ops one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.deep import Steps, deep
from jq.passes.base import PassContext
from jq.passes.iree_mends.shields.sums import ShieldEqual
from jq.passes.prepare._choices import with_choices
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.support.programs import evaluated
from tests.support.texts import load

OPS = 300  # of a chain; Python's stack ends at 1000 calls, and an op takes several
RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.standard_normal((8, 8)).astype(np.float32) * 0.3, "b": np.ones(8, np.float32)}
X = RNG.standard_normal((4, 8)).astype(np.float32)


def activations(p: Any, x: Any) -> Any:
    y = x @ p["w"]
    for _ in range(OPS):
        y = jnp.maximum(y * 0.999 + x * 0.001, y - 1)
    return y @ p["w"]


def a_constant(p: Any, x: Any) -> Any:
    c = jnp.ones((4, 8), jnp.float32)
    for _ in range(OPS):
        c = c * 1.0001 + jnp.float32(1e-4)
    return (x + c) @ p["w"], c.sum(0)


def a_weight(p: Any, x: Any) -> Any:
    k = p["w"]
    for _ in range(OPS):
        k = k * 1.0001 + p["b"]
    return x @ k


def a_weight_added_to_itself(p: Any, x: Any) -> Any:
    k = p["w"]
    for _ in range(40):
        k = k + k * 1e-6
    return x @ k


def movement(p: Any, x: Any) -> Any:
    y = (x @ p["w"]).reshape(2, 2, 8)
    for _ in range(OPS):
        y = jnp.flip(y.transpose(1, 0, 2), 2)
    return y.reshape(4, 8) @ p["w"]


def clipped(p: Any, x: Any) -> Any:
    y = x @ p["w"]
    for _ in range(OPS):
        y = jnp.minimum(jnp.maximum(y, 0), 6)[:, ::-1]
    return y @ p["w"]


def indices(p: Any, x: Any) -> Any:
    i = x.astype(jnp.int32)
    for _ in range(OPS):
        i = (i * 3 + 1) % 7
    return p["w"][i[:, 0]] @ p["w"]


FUNCTIONS = (
    activations,
    a_constant,
    a_weight,
    a_weight_added_to_itself,
    movement,
    clipped,
    indices,
)


@pytest.mark.parametrize("pipeline", ["float", "int8-static"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_program_may_be_long(function: Callable[..., Any], pipeline: str) -> None:
    model = jq.Model(function, PARAMS, (X,), calibration=[(X,)])
    target = "llvm-cpu-generic"  # without kernels of floats: XLA has none
    levels = jq.rewrite(model, pipeline=pipeline, target=target, settings={"recovery": False})
    (got,) = evaluated(levels["target" if pipeline == "float" else "integer"], X)[:1]
    want = np.asarray(jax.tree.leaves(function(PARAMS, X))[0])
    bound = 1e-4 if pipeline == "float" else 0.1
    assert np.linalg.norm(got - want) <= bound * np.linalg.norm(want)


def test_long_arithmetic_on_equal_constants() -> None:
    ops = "\n".join(
        f"%c{i + 1} = stablehlo.add %c{i}, %c{i} : tensor<2x3xi32>" for i in range(2000)
    )
    text = f"""(%x: tensor<2xi32>) -> tensor<2xi32> {{
      %c0 = stablehlo.constant dense<1> : tensor<2x3xi32>
      {ops}
      %z = stablehlo.constant dense<0> : tensor<i32>
      %s = stablehlo.reduce(%c2000 init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<2x3xi32>, tensor<i32>) -> tensor<2xi32>
      %y = stablehlo.add %x, %s : tensor<2xi32>
      return %y : tensor<2xi32> }}"""
    program = load(text)
    cx = PassContext(QuantPlan((), {}), Settings(), load_target("llvm-cpu"))
    assert ShieldEqual().run(program, cx)
    assert "optimization_barrier %1999" in str(program.module)


def test_a_mask_added_to_itself() -> None:
    ops = "\n".join(f"%c{i + 1} = stablehlo.add %c{i}, %c{i} : tensor<4xf32>" for i in range(40))
    text = f"""(%keep: tensor<4xi1>) -> tensor<2x2xf32> {{
      %z = stablehlo.constant dense<0.0> : tensor<4xf32>
      %low = stablehlo.constant dense<-1.0e9> : tensor<4xf32>
      %c0 = stablehlo.select %keep, %z, %low : tensor<4xi1>, tensor<4xf32>
      {ops}
      %y = stablehlo.reshape %c40 : (tensor<4xf32>) -> tensor<2x2xf32>
      return %y : tensor<2x2xf32> }}"""
    program = load(text)
    with_choices(program)
    program.verify()
    assert "reshape %keep" in program.text().replace("%arg0", "%keep")


def test_each_call_is_made_once() -> None:
    calls = []

    @deep
    def ways(n: int) -> Steps[int]:
        calls.append(n)
        return 1 if n < 2 else (yield (n - 1,)) + (yield (n - 2,))

    assert ways(200) == 453973694165307953197296969697410619233826
    assert sorted(calls) == list(range(201))


def test_an_error_ends_all_calls() -> None:
    @deep
    def fails(n: int) -> Steps[int]:
        if n == 0:
            raise ValueError("the last")
        return (yield (n - 1,))

    with pytest.raises(ValueError, match="the last"):
        fails(5000)
