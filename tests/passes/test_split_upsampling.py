"""Transposed convolutions as convolutions of phases: the same sums, by XLA, and with kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import jq
from jq.passes.base import PassContext, make_pass, run_all
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.passes.test_drawn_layouts import placed
from tests.passes.test_kernel_passes import Both, array
from tests.support.programs import evaluated

pytestmark = pytest.mark.usefixtures("quick_xla")


@dataclass(frozen=True)
class Drawn:
    weight: tuple[int, ...]
    x: tuple[int, ...]
    options: dict[str, Any]
    reversed: tuple[int, ...]  # axes of the window


@st.composite
def transposed(draw: st.DrawFn) -> Drawn:
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    batch, channels, filters = (draw(st.integers(1, 3)) for _ in range(3))
    window, image, by = each(1, 6), each(1, 5), each(1, 4)
    assume(max(by) > 1)
    low, high = each(-3, 7), each(-3, 7)
    counts = [
        (n - 1) * d + 1 + a + b - k + 1
        for n, d, a, b, k in zip(image, by, low, high, window, strict=True)
    ]
    assume(min(counts) > 0)
    left, right, out = (tuple(draw(st.permutations(range(rank + 2)))) for _ in range(3))
    options = {
        "window_strides": (1,) * rank,
        "padding": list(zip(low, high, strict=True)),
        "lhs_dilation": by,
        "dimension_numbers": jax.lax.ConvDimensionNumbers(left, right, out),
    }
    turned = tuple(a for a in right[2:] if draw(st.booleans()))
    weight, x = placed((filters, channels, *window), right), placed((batch, channels, *image), left)
    return Drawn(weight, x, options, turned)


def convolved(p: Any, x: Any, *, turned: tuple[int, ...], options: dict[str, Any]) -> Any:
    return jax.lax.conv_general_dilated(x, jax.lax.rev(p["w"], turned), **options)


def split(model: jq.Model) -> Any:
    program = jq.trace(model).program.clone()
    cx = PassContext(QuantPlan((), {}), Settings(), load_target("llvm-cpu"))
    assert run_all([make_pass("split-upsampling", {})], program, cx)
    return program


@settings(
    max_examples=40, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(transposed(), st.integers(0, 2**32))
def test_the_sums_are_those_of_the_dilated_input(case: Drawn, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fn = partial(convolved, turned=case.reversed, options=case.options)
    whole = [rng.integers(-8, 9, s).astype(np.float32) for s in (case.weight, case.x)]
    drawn = [rng.standard_normal(s).astype(np.float32) for s in (case.weight, case.x)]
    for exact, (w, x) in ((True, whole), (False, drawn)):
        program = split(jq.Model(fn, {"w": w}, (x,)))
        assert list(program.weights) == ["w"]
        text = program.text()
        assert text.count("stablehlo.convolution") == 1 and "lhs_dilate = [2" not in text
        (got,) = evaluated(program, x)
        if exact:
            np.testing.assert_array_equal(got, np.asarray(fn({"w": w}, x)))
            continue
        # A sum of n rounded products is off by n roundings of the sum of magnitudes, on each side.
        magnitude = np.asarray(fn({"w": np.abs(w)}, np.abs(x)))
        error = np.abs(got - np.asarray(fn({"w": w}, x)))
        assert (error <= 2 * w.size * 2.0**-24 * magnitude).all()


def upsampled(p: Any, x: Any, *, padding: str = "SAME") -> Any:
    names = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_transpose(x, p["w"], (2, 2), padding, dimension_numbers=names)
    return jax.nn.relu(y + p["b"]) if "b" in p else y


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_a_kernel_takes_it(size: int, padding: str) -> None:
    params = {"w": array(size, size, 16, 12), "b": array(12)}
    fn, x = partial(upsampled, padding=padding), array(1, 6, 7, 16)
    both = Both(fn, params, (x,), "int8-static")
    one_pixel = size == 2  # a product
    assert both.families == {"gemm" if one_pixel else "convolution"}
    assert len(both.facts("kernel")) == 1
    assert "lhs_dilate = [2" not in both.levels["integer"].text()
    # XLA fuses the rescale with the bias, and rounds once where the kernel rounds twice.
    limit = 2.0**-22 * np.abs(both.expected[0]).max()
    np.testing.assert_allclose(both.found[0], both.expected[0], rtol=0, atol=limit)


def test_a_weight_of_two_readers_and_one_that_came_quantized() -> None:
    def twice(p: Any, x: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        plain = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=names)
        return plain, upsampled(p, x)

    x, w = array(1, 4, 5, 16), array(2, 2, 16, 16)
    model = jq.Model(twice, {"w": w}, (x,))
    assert list(split(model).weights) == ["w", "w#2"]
    stored = jq.quantize_weights(model, dtype="int8", granularity="per_channel").params
    program = jq.rewrite(jq.Model(upsampled, stored, (x,)), pipeline="float")["float"]
    assert "lhs_dilate = [2, 2]" in program.text() and list(program.encodings) == ["w"]
