"""Convolutions against NumPy integers, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import strategies as st

import jq
from jq.base.errors import InternalError
from jq.kernels import Convolution, Depthwise, Dequantize, PairConvolution, Quantize, Rescale
from jq.kernels.epilogue.steps import QuantizedResidual
from jq.kernels.gemm.pair_weights import PairWeights
from tests.kernels.harness import Runner
from tests.kernels.references import reference
from tests.kernels.strategies import HERE, codes, epilogues, reads_unsigned, rescale_operands
from tests.support.drawn import random_example

FLIP = np.int8(-128)


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    window = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 2), st.sampled_from([1, 1, 2])))
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, window, strict=True)]
    isa, zeros = draw(st.sampled_from(HERE)), draw(st.booleans())
    return Convolution(
        isa=isa,
        batch=draw(st.integers(1, 2)),
        height=spans[0] + draw(st.integers(0, 6)),
        width=spans[1] + draw(st.integers(0, 9)),
        channels=groups * draw(st.sampled_from([1, 2, 3, 4, 5, 16, 33, 64])),
        filters=groups * draw(st.sampled_from([1, 3, 8, 16, 17, 40])),
        window=window,
        strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 3))),
        dilations=dilations,
        groups=groups,
        row_zero=draw(st.booleans()),
        column_zero=zeros,
        unsigned=draw(st.booleans()) and (reads_unsigned(isa) or not zeros),
        epilogue=draw(epilogues()),
    )


@st.composite
def depthwises(draw: st.DrawFn) -> Depthwise:
    narrow = st.tuples(st.integers(1, 13), st.just(1))
    window = draw(st.one_of(st.tuples(st.integers(1, 5), st.integers(1, 4)), narrow))
    dilations = draw(st.tuples(st.sampled_from([1, 1, 2]), st.sampled_from([1, 1, 2])))
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, window, strict=True)]
    pads = st.sampled_from([(0, 0), (0, 0), (1, 1), (0, 1), (2, 3), (9, 2)])
    padding = draw(st.tuples(pads, pads))
    smallest = [max(1, n - sum(pair)) for n, pair in zip(spans, padding, strict=True)]
    return Depthwise(
        isa=draw(st.sampled_from(HERE)),
        batch=draw(st.integers(1, 2)),
        height=smallest[0] + draw(st.integers(0, 8)),
        width=smallest[1] + draw(st.integers(0, 20)),
        padding=padding,
        channels=draw(st.sampled_from([1, 3, 4, 8, 16, 17, 32, 50, 96])),
        window=window,
        strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        dilations=dilations,
        row_zero=draw(st.booleans()),
        unsigned=draw(st.booleans()),
        parts=draw(st.sampled_from([1, 1, 2, 3])),
        epilogue=draw(epilogues()),
    )


def run_and_compare(
    runner: Runner,
    index: int,
    kernel: Convolution | Depthwise | PairConvolution,
    seed: int,
    pairs: PairWeights | None = None,
    x: np.ndarray | None = None,
    zero: np.ndarray | None = None,
) -> None:
    """On drawn operands where none are given; `pairs` are the weights of a `PairConvolution`."""
    rng = np.random.default_rng(seed)
    shape = (kernel.batch, kernel.height, kernel.width, kernel.channels)
    x = codes(rng, shape) if x is None else x
    columns: dict[str, np.ndarray] = {}
    if isinstance(kernel, PairConvolution):
        n = kernel.filters
        weight = pairs.weight.reshape(kernel.weight_shape)
    elif isinstance(kernel, Convolution):
        n = kernel.filters
        weight = codes(rng, (*kernel.window, kernel.channels // kernel.groups, n))
        if kernel.column_zero:
            columns = {"column_zero": rng.integers(-128, 128, n, dtype=np.int32)}
    else:
        n = kernel.channels
        weight = codes(rng, (*kernel.window, n))
        if kernel.parts > 1:  # codes minus a zero point
            weight = weight - rng.integers(-128, 128, n, dtype=np.int16)
            most = 255 if kernel.parts == 3 else 254
            weight = np.minimum(weight, most)
            weight[..., ::3] = most
    bias = rng.integers(-(2**20), 2**20, n, dtype=np.int32)
    if zero is None:
        zero = rng.integers(-128, 128, kernel.batch if kernel.row_zero else 1, dtype=np.int32)
    known = 0 if kernel.row_zero else int(zero[0])
    if isinstance(kernel, PairConvolution):
        parts = kernel.starts(weight.reshape(-1, n), bias, known)
        packed = list(kernel.pack(pairs, parts["init"]).values())
    else:
        parts = kernel.pack(weight, bias, known, **columns)
        packed = [parts["weights"], parts["init"]]
    shapes = {
        "column": (1, n),
        "row": (kernel.batch, 1),
        "element": (kernel.pixels, n),
        "scalar": (1, 1),
    }
    stored = x ^ FLIP if kernel.unsigned else x
    operands = [stored, *packed]
    if kernel.row_zero:
        operands += [zero, parts["colsum"]]
    if columns:
        operands.append(parts["column_zero"])
    if isinstance(kernel, Depthwise) and kernel.padded:
        code = np.broadcast_to(zero.astype(np.int8), kernel.batch)
        operands.append(code ^ FLIP if kernel.unsigned else code)
    steps = []
    for step in kernel.epilogue:
        steps.append([])
        given = rescale_operands(rng, step, shapes) if isinstance(step, Rescale) else []
        for how, kind in step.operands:
            array = rng.standard_normal(shapes[how]).astype(np.float32)
            if given:
                array = given.pop(0)
            elif kind == "i8":
                array = codes(rng, shapes[how])
            elif kind == "i32":
                array = rng.choice([0, 3, -128, 127], shapes[how]).astype(np.int32)
            elif how == "scalar":
                array = np.full((1, 1), 0.25, np.float32)
            elif isinstance(step, Quantize):
                array = rng.choice([0.5, 0.037, 1.0], shapes[how]).astype(np.float32)
            elif isinstance(step, Dequantize):
                exact = np.exp2(rng.integers(-14, -10, shapes[how]))
                array = (exact if how == "column" else 1 + rng.random(shapes[how])).astype(
                    np.float32
                )
            operands.append(kernel.pad_columns(array) if how == "column" else array)
            if how == "row":
                array = np.repeat(array, kernel.pixels // kernel.batch, 0)
            steps[-1].append(array)
    shaped = [o.reshape(t.shape) for o, t in zip(operands, kernel.operands, strict=True)]
    (y,) = runner.run(index, *shaped)
    want = reference(kernel, x, weight, bias, zero, steps, **columns)
    np.testing.assert_array_equal(y, want, err_msg=kernel.to_json())


@random_example(st.lists(st.one_of(convolutions(), depthwises()), min_size=10, max_size=10))
def test_every_shape_is_exact(drawn: list[Convolution | Depthwise], seed: int) -> None:
    runner = Runner(drawn)
    for i, kernel in enumerate(drawn):
        run_and_compare(runner, i, kernel, seed + i)


def test_rows_share_the_groups_that_their_taps_fit() -> None:
    """Windows along one axis: as many rows as a group of input rows has left over, by strides."""
    one = Depthwise(isa="avx512_vnni", batch=1, height=24, width=1, channels=40, window=(9, 1))
    shapes = [
        ((9, 1), 1, 4),  # 12 rows of taps for 9
        ((9, 1), 2, 2),
        ((5, 1), 3, 2),
        ((8, 1), 1, 1),
        ((23, 1), 1, 2),  # there are no more rows
        ((3, 3), 1, 2),
        ((3, 3), 2, 1),
        ((5, 3), 1, 1),  # the vectors of its taps would not fit the registers
    ]
    kernels = []
    for i, (window, stride, rows) in enumerate(shapes):
        kernel = replace(one, window=window, strides=(stride, 1), width=window[1])
        assert kernel.together == rows
        padding = ((i % 3, 2 * (i % 3)), (0, 0))
        kernels += [replace(kernel, isa=isa, padding=padding) for isa in {HERE[0], HERE[-1]}]
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        run_and_compare(runner, i, kernel, i)


def long_convolutions() -> list[Convolution]:
    """Runs so long, and tiles so many, that a tile's epilogue stands among the next one's products:
    as rows of the window, or taps, are runs; with codes left over, fewer tiles than whole ones, and
    rows that are fewer than the parts.
    """
    to_codes = (Dequantize(), Quantize(unsigned=True))
    added = (Dequantize(), QuantizedResidual(), Quantize(divide=False))
    plain = Convolution(
        isa=HERE[0],
        batch=2,
        height=9,
        width=8,
        channels=64,
        filters=40,
        window=(3, 3),
        epilogue=to_codes,
    )
    return [
        replace(changed, isa=isa)
        for isa in HERE
        for changed in (
            plain,
            replace(plain, filters=64, epilogue=added),
            replace(plain, channels=70, window=(2, 2), row_zero=True),
            replace(plain, channels=128, filters=80, groups=2, dilations=(1, 2), epilogue=added),
            replace(plain, channels=33, window=(1, 8), unsigned=True),
            replace(plain, batch=1, window=(7, 5), strides=(2, 1)),
        )
    ]


def test_epilogues_among_products() -> None:
    kernels = long_convolutions()
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        run_and_compare(runner, i, kernel, i)


def images_in_place() -> list[Convolution]:
    """Lines of pixels that matrix tiles read where they are: of one tile, of two that are full or
    have 14 rows, with strides, dilations and more than one chunk; and runs that are not whole
    chunks: longer ones, whose last chunk begins in the one before, and shorter ones, the last of
    which begins in front of itself."""
    one = Convolution(
        isa="amx_int8", batch=2, height=5, width=16, channels=64, filters=40, window=(3, 3)
    )
    return [
        one,
        replace(one, width=30, channels=128, epilogue=(Dequantize(), Quantize(unsigned=True))),
        replace(one, width=65, strides=(2, 2), unsigned=True, row_zero=True),
        replace(one, width=33, height=7, dilations=(2, 1), window=(3, 6), filters=70),
        replace(one, width=28, height=3, channels=96, window=(1, 1), batch=3, filters=17),
        replace(one, width=28, height=3, channels=64, window=(1, 1), batch=3, filters=17),
        replace(one, width=229, height=9, channels=3, window=(7, 7), strides=(2, 2), filters=64),
        replace(one, width=18, channels=8, unsigned=True, filters=128),
        replace(one, width=34, channels=50, window=(3, 3), row_zero=True),
    ]


def test_tiles_of_images_in_place() -> None:
    kernels = images_in_place()
    assert [k.tiles.rows for k in kernels if k.in_place] == [14, 14, 16, 14, 14, 14, 16, 16, 16]
    if "amx_int8" in HERE:
        runner = Runner(kernels)
        for i, kernel in enumerate(kernels):
            run_and_compare(runner, i, kernel, i)


def test_images_that_tiles_cannot_read_in_place() -> None:
    """Lines that are cut unevenly or into small parts, and short runs with no line beside them."""
    one = images_in_place()[0]
    others = (
        replace(one, width=19),
        replace(one, width=10),
        replace(one, channels=20, window=(1, 3)),
        replace(one, column_zero=True),
    )
    assert not any(kernel.in_place for kernel in others)


def test_taps_of_any_code_and_zero_point() -> None:
    """127 - (-128) is more than two int8 numbers reach; two gave it as -1, without a word."""
    counts = {
        low: Depthwise.parts_of(np.int16([[[low, 0]]])) for low in (-256, -128, 127, 128, 254)
    }
    assert counts == {-256: 2, -128: 1, 127: 1, 128: 2, 254: 2}
    assert Depthwise.parts_of(np.int16([[[255]]])) == 3
    kernel = Depthwise(isa=HERE[0], batch=1, height=3, width=3, channels=1, window=(1, 1), parts=2)
    with pytest.raises(InternalError, match="no sum of 2"):
        kernel.pack(np.full((1, 1, 1), 255, np.int16), None, 0)


def test_a_depthwise_weight_of_its_own_zero_point() -> None:
    """Channels from 0 to 1 have the zero point -128, and their largest weight the code 127."""
    rng = np.random.default_rng(0)
    weight = rng.uniform(0, 1, (3, 3, 1, 32)).astype(np.float32)
    weight[0, 0], weight[1, 1] = 0, 1
    x = rng.normal(size=(1, 12, 12, 32)).astype(np.float32)

    def forward(params: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            params["w"],
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=32,
        )

    model = jq.Model(forward, {"w": weight}, (x,))
    settings = {"weights.scheme": "asymmetric", "recovery": False}
    compiled = jq.compile(model, "int8-dynamic", settings=settings, emit="target")
    assert "depthwise_1x12x12x32" in str(compiled.levels["target"].module)
    want = np.asarray(forward({"w": weight}, x))
    step = np.ptp(x) / 255 * np.abs(weight).sum((0, 1)).max() + np.abs(x).max() * 9 / 255
    assert np.abs(np.asarray(compiled(x)) - want).max() < step
