"""Scales that are learned alone: against least squares, and on what is stored."""

from functools import cache

import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.ir.autodiff.regions import whole
from jq.ir.autodiff.rounding import Codes, Learned, relative_error
from jq.passes.recovery.gptq import Gptq
from jq.passes.recovery.learn import codes_of
from tests.passes.recovery.models import context, mlp, normal
from tests.passes.recovery.test_gptq import after, outputs

RNG = np.random.default_rng(8)
INT4 = {
    "weights.format": "int4",
    "weights.scheme": "asymmetric",
    "weights.granularity": "per-block",
    "weights.scale_type": "float16",
}


def codes(steps, scale, block, free=False):
    return Codes(np.float32(steps), scale, np.zeros_like(scale), block, (-8, 7), free=free)


@pytest.mark.parametrize("free", [False, True])
def test_one_product_has_the_scales_of_least_squares(free):
    """For y = x W' the best scales of a column, and the zeros that are no codes, solve a linear
    system; here K = 6 in blocks of 3."""
    weight, steps = normal(6, 4), RNG.integers(-7, 8, (6, 4))
    weight = weight if not free else np.float32(0.2 * (steps + 2) + 0.1 * weight)
    x = RNG.standard_normal((64, 6)).astype(np.float32)
    start = np.full((2, 4), 0.1, np.float32)
    program = trace(Model(lambda p, x: x @ p["w"], {"w": weight}, (x,)))
    given = codes(steps, start, (3, 1), free)
    learned = Learned(whole(program, ["w"]), program.weights, {"w": given})
    batches = [[0]] * (2400 if free else 800)
    found = learned.descend(learned.samples([[x]]), batches, rate=0.0, scale_rate=0.1)["w"]
    numbers = [found["scale"], -found["scale"] * found["zero"]] if free else [found["scale"]]
    for column in range(4):
        halves = slice(0, 3), slice(3, 6)
        parts = [x[:, s] @ steps[s, column] for s in halves]
        parts += [x[:, s].sum(1) for s in halves] if free else []
        best = np.linalg.lstsq(np.stack(parts, 1), x @ weight[:, column])[0]
        np.testing.assert_allclose(np.concatenate(numbers)[:, column], best, atol=2e-3)


def test_blocks_that_do_not_divide_their_axis():
    steps, scale = RNG.integers(-7, 8, (7, 5)), RNG.random((3, 2), np.float32)
    stored = codes(steps, scale, (3, 4))
    real = stored.real(stored.value(), stored.fixed)
    rows, columns = np.arange(7)[:, None] // 3, np.arange(5) // 4
    np.testing.assert_array_equal(real, steps.astype(np.float32) * scale[rows, columns])


@cache
def chosen(scheme):
    """A program, its data, its plan's context and the codes that GPTQ chose."""
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, INT4 | {"weights.scheme": scheme})
    Gptq().run(program, cx)
    return program, data, cx


def test_the_error_is_that_of_the_stored_parts():
    program, data, cx = chosen("asymmetric")
    stored = {n: codes_of(parts, cx.plan.weights[n]) for n, parts in program.chosen.items()}
    learned = Learned(whole(program, stored), program.weights, stored)
    ours, reference = (outputs(p, data[:1]) for p in (after(program, cx), program))
    expected = ((ours - reference) ** 2).sum() / (reference**2).sum()
    x, wanted, _ = learned.samples(data)(0)
    found = relative_error([(learned.outputs(learned.values(), x), wanted)])
    assert found == pytest.approx(expected, rel=1e-3)


def test_the_whole_program_takes_its_inputs_in_their_order():
    """Also where they are read in another one."""
    weight, (a, b) = normal(6, 4), (RNG.standard_normal((2, 6), np.float32) for _ in range(2))
    program = trace(Model(lambda p, a, b: (b * 2 - a) @ p["w"], {"w": weight}, (a, b)))
    stored = {"w": codes(RNG.integers(-7, 8, (6, 4)), np.ones((1, 1), np.float32), (6, 4))}
    _, (y,), _ = Learned(whole(program, ["w"]), program.weights, stored).samples([[a, b]])(0)
    np.testing.assert_allclose(y, (b * 2 - a) @ weight, rtol=1e-5, atol=1e-5)
