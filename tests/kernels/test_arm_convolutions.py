"""IREE's own int8 convolutions for Arm with `i8mm`: under emulation alone."""

from __future__ import annotations

import numpy as np
import pytest

from jq.passes.base import PassContext, make_pass, run_all
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.ir.ops.test_convolution import Window, convolve
from tests.kernels import emulated
from tests.support.texts import built_for_iree, load
from tests.traps.helpers import trap

pytestmark = pytest.mark.skipif(
    not emulated.COMMAND, reason="needs an emulator: scripts/check.py arm"
)
RNG = np.random.default_rng(0)
TARGET = load_target("aarch64_i8mm")


def run(stride: int, widen: bool) -> bool:
    """True where a 3x3 convolution of 32 channels is right."""
    size = 3 + 3 * stride
    x = RNG.integers(-128, 128, (1, size, size, 32), np.int8)
    w = RNG.integers(-128, 128, (3, 3, 32, 32), np.int8)
    program = load(
        f"""(%x: tensor<1x{size}x{size}x32xi8>, %w: tensor<3x3x32x32xi8>)
            -> tensor<1x4x4x32xi32> {{
          %y = stablehlo.convolution(%x, %w)
            dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
            window = {{stride = [{stride}, {stride}]}}
            {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
            : (tensor<1x{size}x{size}x32xi8>, tensor<3x3x32x32xi8>) -> tensor<1x4x4x32xi32>
          return %y : tensor<1x4x4x32xi32> }}"""
    )
    if widen:
        cx = PassContext(QuantPlan((), {}), Settings(), TARGET)
        assert run_all([make_pass("widen-convolutions", {})], program, cx)
    window = Window((stride, stride), ((0, 0), (0, 0)), (1, 1), (1, 1), (False, False))
    want = convolve(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), window, 1)
    data, _, _ = built_for_iree(program, flags=TARGET.flags)
    (found,) = emulated.Emulated(data, 0).run("main", [x, w])
    return bool((found == want.transpose(0, 2, 3, 1)).all())


@trap
@pytest.mark.parametrize("stride", [1, 2])
def test_filters_are_transposed(stride: int) -> None:
    assert run(stride, widen=False)


@pytest.mark.parametrize("stride", [1, 2])
def test_widened_convolutions_are_right(stride: int) -> None:
    assert run(stride, widen=True)
