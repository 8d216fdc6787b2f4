"""The streaming histogram: exact counts, whatever the order and the cut, in NumPy and XLA."""

from functools import reduce

import numpy as np
import pytest

from jq.ir import Program, TensorSpec, editing, func, ir, tensor_type
from jq.ir.oracle.xla import XlaExecutable
from jq.planning.calibration import histogram
from jq.planning.calibration.histogram import NUMPY_STATS, PROGRAM_STATS, Histogram

RNG = np.random.default_rng(0)
PIECES = [(RNG.standard_normal(500) * s).astype(np.float32) for s in (1, 0.01, 30, 2e-6, 1)]


def merged(pieces):
    packed = [histogram.measure(NUMPY_STATS, p) for p in pieces]
    return reduce(lambda a, b: histogram.combine(NUMPY_STATS, a, b), packed, histogram.neutral())


def test_counts_are_those_of_numpy():
    x = np.concatenate(PIECES)
    h = Histogram.of_data(x)
    edges = np.arange(-1024, 1025) * h.width
    expected, _ = np.histogram(x, edges)
    used = np.flatnonzero(expected)
    np.testing.assert_array_equal(h.counts, expected[used[0] : used[-1] + 1])
    assert (h.low, h.high) == (x.min(), x.max())
    assert 1024 * h.width > np.abs(x).max() >= 512 * h.width


def test_streaming_in_any_order_equals_one_pass():
    whole = histogram.measure(NUMPY_STATS, np.concatenate(PIECES))
    np.testing.assert_array_equal(merged(PIECES), whole)
    np.testing.assert_array_equal(merged(PIECES[::-1]), whole)
    cut = [part for p in PIECES for part in np.array_split(p, 7)]
    np.testing.assert_array_equal(merged(cut), whole)


@pytest.mark.parametrize(
    "x",
    [[0.0], [-0.0, 0.0], [1.0], [-1.0], [3.4e38, -3.4e38], [1e-38, 1e-45], [0.5, -0.5, 0.25]],
    ids=str,
)
def test_edges(x):
    array = np.array(x, np.float32)
    h = Histogram.of_data(array)
    assert h.counts.sum() == len(x)
    assert (h.low, h.high) == (array.min(), array.max())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_shows_in_the_extremes(bad):
    h = histogram.measure(NUMPY_STATS, np.array([1, bad, 2], np.float32))
    assert not np.isfinite(h[1:3].astype(np.int32).view(np.float32)).all()


def run(f, *arrays):
    """`f` over program values, through XLA."""
    with editing():
        module = ir.Module.create()
        types = [tensor_type(a.shape, a.dtype) for a in arrays]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", (types, []))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            result = f(PROGRAM_STATS, *block.arguments)
            func.ReturnOp([result])
        main.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(types, [result.type])
        )
    specs = tuple(TensorSpec(f"x{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays))
    return XlaExecutable(Program(module, {}, specs, ()))(*arrays)[0]


def test_program_equals_numpy():
    packed = []
    for x in PIECES[:3]:
        packed.append(run(histogram.measure, x.reshape(5, 100)))
        np.testing.assert_array_equal(packed[-1], histogram.measure(NUMPY_STATS, x))
    total = run(histogram.combine, packed[1], packed[2])
    np.testing.assert_array_equal(total, histogram.combine(NUMPY_STATS, packed[1], packed[2]))
