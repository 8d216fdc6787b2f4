"""`int8x16-static`: activations of 16 bits with weights of 8."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jq
from jq.ir.build import string_attr
from jq.ir.oracle.interpreter import interpret
from jq.kernels import ATTRIBUTE, JoinDigits, Kernel, WideQuantize, WideResidual, available
from jq.passes.kernels._digits import is_small
from jq.passes.kernels._kernel import declarations
from jq.target.target import load_target
from tests.support.programs import assert_same_bits, evaluated, run_iree
from tests.support.targets import LIMITS

RNG = np.random.default_rng(0)
W = RNG.standard_normal((64, 48)).astype(np.float32)
X = RNG.standard_normal((4, 64)).astype(np.float32)


def test_products_are_exact_and_the_activation_costs_half_a_step():
    model = jq.Model(lambda p, x: x @ p["w"], {"w": W}, (X,), calibration=[(X,)])
    (op,) = jq.plan(model, pipeline="int8x16-static").ops
    kinds = {i: p.encoding.format for i, p in op.operands.items()}
    assert (op.decision, kinds) == ("integer", {0: "int16", 1: "int8"})
    levels = jq.rewrite(model, pipeline="int8x16-static")
    assert "xi64>" in levels["integer"].text()  # a sum of 64 bits holds any products of these
    (got,) = evaluated(levels["integer"], X)
    weights = levels["qdq"].weights
    decoded = weights["w:codes"].astype(np.float64) * weights["w:scale"]
    bound = np.abs(X).max() / 32767 / 2 * np.abs(decoded).sum(0) * (1 + 1e-3)
    assert (np.abs(got - X @ decoded) <= bound).all()
    compiled = np.asarray(jq.compile(model, pipeline="int8x16-static")(X))
    assert np.array_equal(compiled, got)


CONVOLVED = {
    "stem": RNG.standard_normal((3, 3, 3, 16)).astype(np.float32),
    "deep": RNG.standard_normal((3, 3, 1, 16)).astype(np.float32),
    "point": RNG.standard_normal((1, 1, 16, 16)).astype(np.float32),
    "last": RNG.standard_normal((3, 3, 16, 24)).astype(np.float32),
}


def convolutions(p, x):
    def conv(x, name, groups=1):
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, p[name], (1, 1), "SAME", dimension_numbers=layout, feature_group_count=groups
        )

    x = jax.nn.relu(conv(x, "stem"))
    x = x + conv(jax.nn.relu6(conv(x, "deep", 16)), "point")
    return conv(x, "last")


def kernels_of(program):
    return [
        Kernel.from_json(string_attr(op, ATTRIBUTE) or "") for op in declarations(program).values()
    ]


def steps_of(program):
    return [step for kernel in kernels_of(program) for step in getattr(kernel, "epilogue", ())]


def assert_same_as_the_integer_level(levels, *inputs):
    (want,) = interpret(levels["integer"], *inputs)  # XLA multiplies by 1 / scale
    (got,) = run_iree(levels["target"], inputs)
    assert_same_bits(got, want, "a program of 16-bit codes")


@pytest.mark.parametrize("isa", ["avx512_vnni", "avx2"])
def test_kernels_end_in_codes_of_16_bits(isa):
    """Between two products, taking codes apart is all that is left to the compiler. A product that
    reads bytes as unsigned is one kernel."""
    if isa not in {isa.name for isa in available()}:
        pytest.skip(f"no {isa} here")
    target = load_target("llvm-cpu").model_copy(update={"kernels": isa})
    batches = [(RNG.standard_normal((1, 9, 9, 3)).astype(np.float32),) for _ in range(2)]
    model = jq.Model(convolutions, CONVOLVED, batches[0], calibration=batches)
    levels = jq.rewrite(model, pipeline="int8x16-static", target=target)
    steps, families = steps_of(levels["target"]), [k.family for k in kernels_of(levels["target"])]
    assert sum(isinstance(step, WideQuantize) for step in steps) == 3
    assert sum(isinstance(step, WideResidual) for step in steps) == 1
    joined = [step.small for step in steps if isinstance(step, JoinDigits)]
    digits = ["digit_convolution", "digit_convolution", "digit_depthwise", "digit_gemm"]
    if isa == "avx2":
        assert joined == [True] * 4
    else:
        assert not joined and sorted(families) == digits
    assert levels["target"].text().count("stablehlo.divide") == 1  # of the input
    for (x,) in batches:
        assert_same_as_the_integer_level(levels, x)


def test_sums_of_more_than_32_bits_are_joined_as_such():
    x = np.where(RNG.random((2, 3000)) < 0.99, 1, -1).astype(np.float32)
    model = jq.Model(
        lambda p, x: x @ p["w"], {"w": np.ones((3000, 20), "f")}, (x,), calibration=[(x,)]
    )
    levels = jq.rewrite(model, pipeline="int8x16-static")
    assert [step.small for step in steps_of(levels["target"])] == [False]
    assert_same_as_the_integer_level(levels, x)


def test_edges_have_no_zero_point_where_the_device_has_none():
    """Residual sums are of 16 bits whatever the activations' format is."""
    params = {"a": W[:, :16], "b": W[:16, :16]}

    def fn(p, x):
        y = x @ p["a"]
        return (y + (y @ p["b"])) @ p["b"]

    model = jq.Model(fn, params, (X,), calibration=[(X,)])
    for target, schemes in ((LIMITS, {"symmetric"}), ("llvm-cpu", {"asymmetric"})):
        plan = jq.plan(model, pipeline="int8-static-integer-only", target=target)
        wide = [e.encoding for e in plan.edges.values() if e.encoding.format == "int16"]
        assert wide
        assert {encoding.scheme for encoding in wide} == schemes


def test_sums_that_fit_32_bits_are_told_by_the_largest_column():
    ones = np.ones((2**16, 1), np.int8)
    assert is_small(ones[1:], None) and not is_small(ones, None)
    assert is_small(ones, np.ones(1, np.int32))
    assert is_small(np.ones((3, 3, 8, 0), np.int8), None)  # no filters
