"""Convolutions of bytes are widened where IREE would transpose their filters, and there alone."""

from __future__ import annotations

import numpy as np
import pytest

from jq.base.system.processor import Processor
from jq.passes.base import PassContext, make_pass, run_all
from jq.passes.iree_mends import convolutions
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import Target, load_target
from tests.support.programs import evaluated
from tests.support.texts import inputs_of, load

# A window; every second element; and what is a product.
TEXT = """(%x: tensor<1x5x5x16xi8>, %w: tensor<3x3x16x16xi8>, %v: tensor<1x1x16x16xi8>)
    -> (tensor<1x3x3x16xi32>, tensor<1x3x3x16xi32>, tensor<1x5x5x16xi32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x5x16xi8>, tensor<3x3x16x16xi8>) -> tensor<1x3x3x16xi32>
  %1 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x5x16xi8>, tensor<1x1x16x16xi8>) -> tensor<1x3x3x16xi32>
  %2 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x5x16xi8>, tensor<1x1x16x16xi8>) -> tensor<1x5x5x16xi32>
  return %0, %1, %2 : tensor<1x3x3x16xi32>, tensor<1x3x3x16xi32>, tensor<1x5x5x16xi32>
}"""


def context(target: str | Target) -> PassContext:
    return PassContext(QuantPlan((), {}), Settings(), load_target(target))


def test_convolutions_are_widened_and_products_are_not() -> None:
    program = load(TEXT)
    inputs = inputs_of(program)
    want = evaluated(program, *inputs)
    assert run_all([make_pass("widen-convolutions", {})], program, context("aarch64_i8mm"))
    assert str(program.module).count("(tensor<1x5x5x16xi16>, ") == 2
    assert str(program.module).count("(tensor<1x5x5x16xi8>, ") == 1
    for x, y in zip(want, evaluated(program, *inputs), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("target", ["llvm-cpu-aarch64", "x86-64-v3", "avx512_vnni", "npu-int8"])
def test_other_targets_are_left_alone(target: str) -> None:
    program = load(TEXT)
    assert not run_all([make_pass("widen-convolutions", {})], program, context(target))


ARM = ("--iree-llvmcpu-target-triple=aarch64-linux-gnu",)


@pytest.mark.parametrize(
    ("machine", "flags", "may"),
    [
        ("x86_64", (*ARM, "--iree-llvmcpu-target-cpu=neoverse-n2"), True),
        ("x86_64", (*ARM, "--iree-llvmcpu-target-cpu-features=+dotprod"), False),
        ("x86_64", ("--iree-llvmcpu-target-cpu=host",), False),
        ("aarch64", ("--iree-llvmcpu-target-cpu=host",), True),
        ("aarch64", ("--iree-llvmcpu-target-cpu-features=+i8mm",), True),
    ],
)
def test_which_targets_multiply_matrices(
    monkeypatch: pytest.MonkeyPatch, machine: str, flags: tuple[str, ...], may: bool
) -> None:
    here = Processor(machine, frozenset({"asimddp", "i8mm"}))
    monkeypatch.setattr(convolutions, "this_processor", lambda: here)
    assert convolutions.multiplies_matrices(Target(name="t", flags=flags)) == may
