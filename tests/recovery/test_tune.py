"""Tuning of scales: against least squares, on what it takes, and that it never does harm."""

import logging

import jax.numpy as jnp
import numpy as np
import pytest

from jq.backend.tuning import Blocks, Tuning
from jq.formats import NUMPY, get_format
from jq.model import Model
from jq.passes.base import PassContext
from jq.passes.gptq import Gptq
from jq.passes.tune import Tune
from jq.trace.trace import trace
from tests.recovery.models import context, mlp, normal
from tests.recovery.test_gptq import after, outputs

RNG = np.random.default_rng(8)
INT4 = {
    "weights.format": "int4",
    "weights.scheme": "asymmetric",
    "weights.granularity": "per-block",
    "weights.scale_type": "float16",
}


def error(program, data, reference):
    return ((outputs(program, data) - reference) ** 2).sum() / (reference**2).sum()


def test_one_product_has_the_scales_of_least_squares():
    """For y = x W' the best scales of a column solve a linear system; here K = 6 in blocks of 3."""
    weight, steps = normal(6, 4), RNG.integers(-7, 8, (6, 4))
    x = RNG.standard_normal((64, 6)).astype(np.float32)
    start = np.full((2, 4), 0.1, np.float32)
    program = trace(Model(lambda p, x: x @ p["w"], {"w": weight}, (x,)))
    tuning = Tuning(program, {"w": Blocks(steps, start, (3, 1))})
    found = start * (1 + tuning.descend([[x]], rate=0.1, epochs=800, batch=1)["w"])
    for column in range(4):
        parts = [x[:, s] @ steps[s, column] for s in (slice(0, 3), slice(3, 6))]
        best = np.linalg.lstsq(np.stack(parts, 1), x @ weight[:, column])[0]
        np.testing.assert_allclose(found[:, column], best, atol=2e-3)


def test_blocks_that_do_not_divide_their_axis():
    steps, scale = RNG.integers(-7, 8, (7, 5)), RNG.random((3, 2), np.float32)
    real = Blocks(steps, scale, (3, 4)).real(jnp.asarray(steps), jnp.asarray(scale))
    rows, columns = np.arange(7)[:, None] // 3, np.arange(5) // 4
    np.testing.assert_array_equal(real, steps.astype(np.float32) * scale[rows, columns])


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
def test_the_output_is_closer_and_only_scales_change(scheme):
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, INT4 | {"weights.scheme": scheme})
    reference = outputs(program, data)
    Gptq().run(program, cx)
    codes = {name: parts["codes"].copy() for name, parts in cx.encoded.items()}
    before = error(after(program, cx), data, reference)
    assert Tune(epochs=40, batch=2).run(program, cx)
    assert error(after(program, cx), data, reference) < 0.8 * before
    for name, parts in cx.encoded.items():
        np.testing.assert_array_equal(parts["codes"], codes[name])
        assert parts["scale"].dtype == np.float16


def test_what_makes_the_error_worse_is_dropped():
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, INT4)
    Gptq().run(program, cx)
    before = {name: dict(parts) for name, parts in cx.encoded.items()}
    assert not Tune(rate=5.0).run(program, cx)
    for name, parts in before.items():
        assert cx.encoded[name]["scale"] is parts["scale"]


def test_what_is_compared_is_what_is_stored():
    """The error that the pass knows is that of the parts it leaves."""
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, INT4)
    Gptq().run(program, cx)
    Tune(epochs=5).run(program, cx)
    blocks = {}
    for name, parts in cx.encoded.items():
        enc = cx.plan.weights[name]
        decoded = get_format(enc.format).decode(NUMPY, parts, enc)
        unit = decoded / np.repeat(parts["scale"].astype(np.float32), enc.block[0], 0)
        blocks[name] = Blocks(np.rint(unit), parts["scale"].astype(np.float32), (32, 1))
    tuning = Tuning(program, blocks)
    run = [outputs(p, data[:1]) for p in (program, after(program, cx))]
    expected = ((run[1] - run[0]) ** 2).sum() / (run[0] ** 2).sum()
    assert tuning.error(tuning.zero(), data[:1]) == pytest.approx(expected, rel=1e-3)


def test_codes_of_8_bits_and_programs_without_data_are_left_alone(caplog):
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data)
    Gptq().run(program, cx)
    assert not Tune().run(program, cx)
    _, none = context(model, "int8-weight-only", None, INT4)
    none.encoded.update(cx.encoded)
    with caplog.at_level(logging.WARNING, "jq"):
        assert not Tune().run(program, none)
    assert "was skipped (tune, ...): it needs" in caplog.text


def test_a_program_without_a_gradient_is_left_alone(caplog):
    import jax

    def f(p, x):
        return jax.lax.sort(x @ p["w"], dimension=1)

    x = RNG.standard_normal((8, 32)).astype(np.float32)
    program, cx = context(Model(f, {"w": normal(32, 16)}, (x,)), "int8-weight-only", [[x]], INT4)
    Gptq().run(program, cx)
    with caplog.at_level(logging.WARNING, "jq"):
        assert not Tune().run(program, cx)
    assert "tune was skipped" in caplog.text
    assert isinstance(cx, PassContext)
