"""Contractions in drawn layouts: the bits of the `target` level, on IREE, are those of the
`integer` level on the interpreter.

What is drawn: order of all axes of operands and results, transposes around them, strides, padding,
dilations, groups, batch axes. One program holds many contractions, so that one compile tests all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.passes.test_kernel_passes import Both
from tests.support.child import Child
from tests.support.drawn import random_example

MANY = 8  # contractions to a program
Function = Callable[[np.ndarray, Any], Any]  # of weight and input
Axes = Sequence[int] | None


@dataclass(frozen=True)
class Drawn:
    """One contraction: its function, and the shapes of weight and input."""

    function: Function  # of this module, so that another process can have it
    weight: tuple[int, ...]
    x: tuple[int, ...]
    what: str


def convolved(w: Any, x: Any, *, turned: Axes, turn: Axes, **kwargs: Any) -> Any:
    """A convolution of an operand that is transposed, or its result, or neither."""
    y = jax.lax.conv_general_dilated(x.transpose(turned) if turned else x, w, **kwargs)
    return y.transpose(turn) if turn else y


def multiplied(w: Any, x: Any, *, left: bool, numbers: Any, turn: Axes) -> Any:
    return jax.lax.dot_general(*((w, x) if left else (x, w)), numbers).transpose(turn)


@st.composite
def convolutions(draw: st.DrawFn) -> Drawn:
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    batch, groups, channels = (draw(st.integers(1, 3)) for _ in range(3))
    filters, window, image = draw(st.integers(1, 4)) * groups, each(1, 3), each(4, 7)
    orders = [draw(st.permutations(range(rank + 2))) for _ in range(4)]
    left, right, out = (tuple(order) for order in orders[:3])
    before, after = draw(st.booleans()), draw(st.booleans())
    kwargs = {
        "window_strides": each(1, 2),
        "padding": list(zip(each(0, 2), each(0, 2), strict=True)),
        "lhs_dilation": draw(st.sampled_from([(1,) * rank, each(1, 2)])),
        "rhs_dilation": draw(st.sampled_from([(1,) * rank, each(1, 2)])),
        "dimension_numbers": jax.lax.ConvDimensionNumbers(left, right, out),
        "feature_group_count": groups,
    }
    shape = placed((batch, channels * groups, *image), left)
    turned = np.argsort(orders[3]).tolist() if before else None
    function = partial(convolved, turned=turned, turn=orders[3] if after else None, **kwargs)
    given = tuple(shape[a] for a in orders[3]) if before else shape
    weight = placed((filters, channels, *window), right)
    return Drawn(function, weight, given, f"{kwargs} {weight} {given} {before} {after} {orders}")


@st.composite
def products(draw: st.DrawFn) -> Drawn:
    """Any number of batch, contracted and free axes, in any order; the weight left or right."""
    batch, contracted = draw(st.integers(0, 2)), draw(st.integers(1, 2))
    sizes = [draw(st.integers(1, 7)) for _ in range(batch + contracted)]
    axes, shapes = [], []
    for _ in range(2):
        whole = sizes + [draw(st.integers(1, 9)) for _ in range(draw(st.integers(0, 2)))]
        order = draw(st.permutations(range(len(whole))))
        shapes.append(tuple(whole[a] for a in order))
        axes.append([order.index(a) for a in range(batch + contracted)])
    (a, b), left = axes, draw(st.booleans())
    numbers = ((a[batch:], b[batch:]), (a[:batch], b[:batch]))
    rank = sum(map(len, shapes)) - batch - 2 * contracted
    turn = draw(st.permutations(range(rank)))
    function = partial(multiplied, left=left, numbers=numbers, turn=turn)
    weight, given = shapes if left else shapes[::-1]
    return Drawn(function, weight, given, f"{numbers} {weight} {given} {left} {turn}")


def placed(sizes: tuple[int, ...], places: tuple[int, ...]) -> tuple[int, ...]:
    """The shape whose axis `places[i]` has `sizes[i]`."""
    return tuple(sizes[places.index(a)] for a in range(len(places)))


def check(cases: list[Drawn], pipeline: str) -> None:
    rng = np.random.default_rng(math.prod(cases[0].x))

    def array(shape: tuple[int, ...]) -> np.ndarray:
        return (rng.standard_normal(shape) + 0.5).astype(np.float32)

    def model(params: Any, *inputs: Any) -> Any:
        return [
            c.function(params[f"w{i}"], x)
            for i, (c, x) in enumerate(zip(cases, inputs, strict=True))
        ]

    params = {f"w{i}": array(c.weight) for i, c in enumerate(cases)}
    both = Both(model, params, tuple(array(c.x) for c in cases), pipeline)
    for case, expected, found in zip(cases, both.expected, both.found, strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=case.what)


PIPELINES = pytest.mark.parametrize("pipeline", ["int8-dynamic", "int8-static"])


@PIPELINES
@random_example(st.lists(convolutions(), min_size=MANY, max_size=MANY))
def test_convolutions(pipeline: str, child: Child, cases: list[Drawn], seed: int) -> None:
    child.call(check, cases, pipeline)


@PIPELINES
@random_example(st.lists(products(), min_size=MANY, max_size=MANY))
def test_products(pipeline: str, child: Child, cases: list[Drawn], seed: int) -> None:
    child.call(check, cases, pipeline)


@PIPELINES
def test_a_result_with_spatial_axes_exchanged(pipeline: str) -> None:
    """Written as columns, rows; after it what kernels would take for a bias and a ReLU."""

    def fn(p: Any, x: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NWHC")
        y = jax.lax.conv_general_dilated(x, p["w"], (1, 2), "SAME", dimension_numbers=numbers)
        return jax.nn.relu(y + p["b"])

    rng = np.random.default_rng(0)
    shapes = {"w": (3, 2, 4, 6), "b": (6,)}
    params = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    x = rng.standard_normal((2, 5, 7, 4)).astype(np.float32)
    both = Both(fn, params, (x,), pipeline)
    assert both.families == {"convolution"}
    # XLA fuses the rescale with the bias, and rounds once where the kernel rounds twice.
    limit = 2.0**-22 * np.abs(both.expected[0]).max()
    np.testing.assert_allclose(both.found[0], both.expected[0], rtol=0, atol=limit)
