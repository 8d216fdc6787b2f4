"""Results in a frame of padding against NumPy's `pad`, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import Batch, Convolution, Dequantize, Frame, Gemm, Kernel, Quantize
from jq.kernels.machine.isa import get_isa
from tests.kernels import test_convolution, test_gemm
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE, gemms
from tests.support.drawn import random_example

TO_CODES = (Dequantize(), Quantize(unsigned=True))
pads = st.sampled_from([(0, 0), (1, 1), (0, 1), (3, 2)])
frame_codes = st.sampled_from([0, -128, 127, 5])

VECTORS = next(name for name in HERE if not get_isa(name).tiles)  # frames are not of tiles


@st.composite
def framed_gemms(draw: st.DrawFn) -> Kernel:
    height, width = draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 7, 14, 33]))
    frame = Frame(height, width, draw(st.tuples(pads, pads)), draw(frame_codes))
    m = height * width * draw(st.integers(1, 3))
    gemm = draw(gemms())
    isa = VECTORS if get_isa(gemm.isa).tiles else gemm.isa
    return replace(gemm, isa=isa, m=m, rows=frame)


@st.composite
def framed_convolutions(draw: st.DrawFn) -> Kernel:
    plain = draw(test_convolution.convolutions())
    return replace(
        plain, frame=Frame(*plain.output, draw(st.tuples(pads, pads)), draw(frame_codes))
    )


def check(runner: Runner, index: int, kernel: Kernel, seed: int) -> None:
    if isinstance(kernel, Convolution):
        test_convolution.run_and_compare(runner, index, kernel, seed)
        return
    assert isinstance(kernel, Gemm)
    result, expected = test_gemm.run_and_compare(runner, index, kernel, seed)
    np.testing.assert_array_equal(result, expected, err_msg=kernel.to_json())


@random_example(
    st.lists(st.one_of(framed_gemms(), framed_convolutions()), min_size=12, max_size=12)
)
def test_every_frame_is_exact(kernels: list[Kernel], seed: int) -> None:
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        check(runner, i, kernel, seed + i)


def large() -> list[Kernel]:
    """Many workgroups, whose blocks begin within rows of an image; epilogues among products."""
    gemm = Gemm(isa=VECTORS, m=3 * 28 * 29, k=256, n=100, epilogue=TO_CODES)
    convolution = Convolution(
        isa=VECTORS,
        batch=2,
        height=22,
        width=23,
        channels=64,
        filters=80,
        window=(3, 3),
        epilogue=TO_CODES,
    )
    frame = Frame(28, 29, ((1, 1), (1, 1)), 3)
    return [
        replace(gemm, rows=frame),
        replace(gemm, rows=replace(frame, height=29, width=28, padding=((0, 2), (3, 0)))),
        replace(convolution, frame=replace(frame, height=20, width=21)),
    ]


@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_many_workgroups(driver: str) -> None:
    kernels = large()
    runner = Runner(kernels)
    runner.load(runner.data, driver)
    for i, kernel in enumerate(kernels):
        check(runner, i, kernel, i)


def test_what_has_no_frame() -> None:
    frame = Frame(4, 4, ((1, 1), (1, 1)), 0)
    batched = Gemm(isa=HERE[0], m=16, k=4, n=4, rows=Batch(2))
    assert batched.in_frame(frame) is None
    with pytest.raises(InternalError, match="no frame of"):
        replace(frame, padding=((0, -1), (0, 0)))
    with pytest.raises(InternalError, match="no images"):
        Gemm(isa=HERE[0], m=17, k=4, n=4, rows=frame)
