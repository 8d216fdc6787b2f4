"""Products of 16-bit codes, both digits in one kernel, against NumPy integers, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import (
    Dequantize,
    DigitConvolution,
    DigitDepthwise,
    DigitGemm,
    Residual,
    WideQuantize,
    get_isa,
)
from tests.kernels.harness import Runner
from tests.kernels.references import reference
from tests.kernels.strategies import HERE, codes, sizes
from tests.support.drawn import random_example

ISAS = [isa for isa in HERE if get_isa(isa).dot.lhs_unsigned]
if not ISAS:
    pytest.skip("no product of this processor reads codes as unsigned", allow_module_level=True)
SMALL = st.integers(1, 5)
EPILOGUES: list[tuple[Any, ...]] = [
    (),
    (Dequantize(),),
    (Dequantize(), Residual()),
    (Dequantize(), WideQuantize(-(2**15) + 1)),
]


def gemms() -> st.SearchStrategy[Any]:
    shape = {"m": sizes, "k": sizes, "n": sizes}
    return st.builds(DigitGemm, unsigned=st.just(True), **shape, **_common())


def _common() -> dict[str, Any]:
    return {"isa": st.sampled_from(ISAS), "epilogue": st.sampled_from(EPILOGUES)}


@st.composite
def windows(draw: st.DrawFn) -> Any:
    window = draw(st.sampled_from([(1, 1), (3, 3), (2, 3), (5, 5)]))
    strides, dilations = draw(st.sampled_from([(1, 1), (2, 2), (1, 2)])), (1, 1)
    if draw(st.booleans()):
        dilations = draw(st.sampled_from([(2, 1), (1, 2)]))
    least = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    height, width = (n + draw(st.integers(0, 12)) for n in least)
    shape = {"window": window, "strides": strides, "dilations": dilations, "unsigned": True}
    shape |= {"batch": draw(st.integers(1, 2)), "height": height, "width": width}
    shape |= {name: draw(strategy) for name, strategy in _common().items()}
    if draw(st.booleans()):
        pad = st.tuples(st.integers(0, 2), st.integers(0, 2))
        padding = (draw(pad), draw(pad))
        return DigitDepthwise(channels=draw(sizes), padding=padding, **shape)
    groups = draw(st.sampled_from([1, 1, 2]))
    channels, filters = groups * draw(SMALL), groups * draw(sizes)
    return DigitConvolution(channels=channels, filters=filters, groups=groups, **shape)


def run(runner: Runner, index: int, kernel: Any, x: np.ndarray, weight: np.ndarray) -> tuple:
    """The kernel's result and the reference of int16 codes."""
    rng, (rows, columns) = np.random.default_rng(index), kernel.shape
    scale = (np.exp2(rng.integers(-24, -16, columns))).astype(np.float32)
    steps: dict[Any, list[np.ndarray]] = {
        Dequantize: [scale],
        Residual: [rng.standard_normal((rows, columns)).astype(np.float32)],
        WideQuantize: [np.array([2.0**-12], np.float32), np.zeros(1, np.int32)],
    }
    given = [steps[type(step)] for step in kernel.epilogue]
    packed, wide = kernel.pack(weight), x.astype(np.int32) + (1 << 15)
    both = [(wide >> 8).astype(np.uint8).view(np.int8), (wide & 255).astype(np.uint8).view(np.int8)]
    padding = []
    if isinstance(kernel, DigitDepthwise) and kernel.padded:
        padding = [np.full(kernel.batch, -128, np.int8)]
    flat = [kernel.pad_columns(a) if a is scale else a for arrays in given for a in arrays]
    operands = [*both, packed["weights"], packed["init"], *padding, *flat]
    shaped = [o.reshape(t.shape) for o, t in zip(operands, kernel.operands, strict=True)]
    (result,) = runner.run(index, *shaped)
    return result, reference(kernel, x, weight, operands=given)


def shapes(kernel: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(kernel, DigitGemm):
        return (kernel.m, kernel.k), (kernel.k, kernel.n)
    image = (kernel.batch, kernel.height, kernel.width, kernel.channels)
    return image, kernel.weight_shape


@random_example(
    st.tuples(
        st.lists(gemms(), min_size=6, max_size=6), st.lists(windows(), min_size=8, max_size=8)
    )
)
def test_every_shape_is_exact(kernels: tuple[list[Any], list[Any]], seed: int) -> None:
    rng, every = np.random.default_rng(seed), [*kernels[0], *kernels[1]]
    runner = Runner(every)
    for i, kernel in enumerate(every):
        image, filters = shapes(kernel)
        x = rng.integers(-(2**15), 2**15, image, dtype=np.int16)
        x = np.where(
            rng.random(image) < 0.3, rng.choice([-(2**15), 2**15 - 1, 0, -1, 255, 256], image), x
        )
        result, expected = run(runner, i, kernel, x.astype(np.int16), codes(rng, filters))
        np.testing.assert_array_equal(result, expected, err_msg=kernel.to_json())


@pytest.mark.parametrize("isa", ISAS)
def test_largest_sums(isa: str) -> None:
    """Sums next to the ends of 32 bits: what is lost above them in between does not matter."""
    kernel = DigitGemm(isa=isa, m=3, k=511, n=33, unsigned=True)
    runner = Runner([kernel])
    for code in (-(2**15), 2**15 - 1):
        for weight in (-128, 127):
            x, w = np.full((3, 511), code, np.int16), np.full((511, 33), weight, np.int8)
            result, expected = run(runner, 0, kernel, x, w)
            assert abs(int(expected[0, 0])) > 2**30
            np.testing.assert_array_equal(result, expected)


def test_what_has_no_such_kernel_is_refused() -> None:
    kernel, weight = DigitGemm(isa=ISAS[0], m=1, k=4, n=16), np.ones((4, 16), np.int8)
    with pytest.raises(InternalError, match="two digits have no bias and no zero points"):
        kernel.pack(weight)
