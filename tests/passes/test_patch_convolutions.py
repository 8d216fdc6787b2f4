"""Convolutions as products with patches give the convolution's sums, by XLA before and after."""

from __future__ import annotations

import numpy as np
import pytest

from jq.passes.base import PassContext, make_pass, run_all
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.support.programs import evaluated
from tests.support.texts import inputs_of, load

ONE = "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
CASES = {
    "one dimension": """(%x: tensor<2x17x5xf32>, %w: tensor<4x5x7xf32>) -> tensor<2x8x7xf32> {
      %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {stride = [2], pad = [[1, 2]], rhs_dilate = [2]} """
    + ONE
    + """ : (tensor<2x17x5xf32>, tensor<4x5x7xf32>) -> tensor<2x7x7xf32>
      %z = stablehlo.constant dense<0.0> : tensor<2x1x7xf32>
      %r = stablehlo.concatenate %y, %z, dim = 1
        : (tensor<2x7x7xf32>, tensor<2x1x7xf32>) -> tensor<2x8x7xf32>
      return %r : tensor<2x8x7xf32> }""",
    "transposed, other layouts": """(%x: tensor<3x6x5xf32>,
        %w: tensor<7x3x4xf32> {jq.weight = "w"}) -> tensor<7x6x13xf32> {
      %y = stablehlo.convolution(%x, %w) dim_numbers = [f, b, 0]x[o, i, 0]->[f, b, 0],
        window = {pad = [[3, 4]], lhs_dilate = [2]} """
    + ONE
    + """ : (tensor<3x6x5xf32>, tensor<7x3x4xf32>) -> tensor<7x6x13xf32>
      return %y : tensor<7x6x13xf32> }""",
    "three dimensions": """(%x: tensor<1x4x5x6x3xf32>, %w: tensor<2x3x1x3x5xf32>)
        -> tensor<1x3x5x3x5xf32> {
      %y = stablehlo.convolution(%x, %w)
        dim_numbers = [b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f],
        window = {stride = [1, 1, 2], pad = [[0, 0], [1, 1], [0, 0]]} """
    + ONE
    + """ : (tensor<1x4x5x6x3xf32>, tensor<2x3x1x3x5xf32>) -> tensor<1x3x5x3x5xf32>
      return %y : tensor<1x3x5x3x5xf32> }""",
    "cut and strided": """(%x: tensor<1x9x8x3xf32>, %w: tensor<1x1x3x5xf32>)
        -> tensor<1x3x5x5xf32> {
      %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {stride = [3, 2], pad = [[-1, 0], [1, 0]]} """
    + ONE
    + """ : (tensor<1x9x8x3xf32>, tensor<1x1x3x5xf32>) -> tensor<1x3x5x5xf32>
      return %y : tensor<1x3x5x5xf32> }""",
}


@pytest.mark.parametrize("case", CASES)
def test_patches_give_the_convolution(case: str) -> None:
    program = load(CASES[case])
    inputs = inputs_of(program)
    (want,) = evaluated(program, *inputs)
    cx = PassContext(QuantPlan((), {}), Settings(), load_target("llvm-cpu"))
    assert run_all([make_pass("patch-convolutions", {})], program, cx)
    assert "stablehlo.convolution" not in str(program.module)
    (got,) = evaluated(program, *inputs)
    # Sums of at most 32 terms, whose magnitudes are below 2 in the mean, in another order.
    np.testing.assert_allclose(got, want, rtol=0, atol=32 * 2.0**-24 * 32 * 2)
