"""Hadamard matrices of every construction, the transform, and where it is placed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.ir import at
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, prepare, rewrite
from jq.passes.recovery import rotate_online
from jq.passes.recovery._hadamard import block_of, factors_of, hadamard, matrix
from jq.passes.recovery.rotate_online import RotateOnline, transform, turned
from jq.planning.decisions import QuantPlan
from tests.passes.recovery.models import TARGET, normal
from tests.support.programs import evaluated

RNG = np.random.default_rng(29)


@pytest.mark.parametrize("n", [1, 2, 4, 8, 12, 16, 20, 24, 28, 36, 40, 44, 48, 60, 64, 76, 384])
def test_a_hadamard_matrix(n):
    h = hadamard(n)
    assert h is not None and set(np.unique(h)) <= {-1, 1}
    np.testing.assert_array_equal(h.astype(int) @ h.T.astype(int), n * np.eye(n, dtype=int))


@pytest.mark.parametrize("n", [3, 6, 10, 92])
def test_there_is_none(n):
    """92 exists, but by none of the constructions here."""
    assert hadamard(n) is None


@pytest.mark.parametrize(
    ("width", "block"), [(64, 64), (384, 384), (100, 20), (9, 1), (1536, 1536), (92, 4), (360, 360)]
)
def test_blocks(width, block):
    assert block_of(width) == block
    h = matrix(width)
    np.testing.assert_array_equal(h @ h.T, block * np.eye(block))
    assert max(factors_of(width), default=1) <= 180


@pytest.mark.parametrize("width", [64, 384, 768, 1024, 1536, 4096, 100])
def test_no_channel_takes_the_mean_of_all(width):
    """It would be sqrt(block) times the mean, beside numbers that keep their size."""
    block = block_of(width)
    values = 1 + 0.1 * RNG.standard_normal((64, width))
    found = np.abs(turned(values, 1)) / np.sqrt(block)
    assert found.max() < min(5, 0.5 * np.sqrt(block))


@pytest.mark.parametrize("shape", [(3, 64), (2, 24, 5), (4, 100), (2, 3, 12)])
@pytest.mark.parametrize("axis", [1, -1])
def test_the_transform_of_the_program_is_the_matrix(shape, axis):
    x = RNG.standard_normal(shape).astype(np.float32)
    axis %= len(shape)
    program = trace(Model(lambda p, x: x + p, np.float32(0), (x,)))
    (result,) = program.returned
    with at(result.owner, after=True):
        program.return_values([transform(result, axis)])
    np.testing.assert_allclose(evaluated(program, x)[0], turned(x, axis), atol=2e-5)


def rotated(program, data, pipeline, **options):
    copy = program.clone()
    cx = PassContext(QuantPlan((), {}), pipeline.settings, TARGET, data)
    changed = RotateOnline(**options).run(copy, cx)
    copy.verify()
    return copy, changed


def outputs(program, data):
    run = XlaExecutable(program)
    return [np.concatenate(parts) for parts in zip(*(run(*x) for x in data), strict=True)]


def with_outliers(width=64):
    """An outlier channel in front of two products that read it, and a convolution."""

    def f(p, x):
        y = jnp.tanh(x) * p["outliers"]
        image = y.reshape(2, 4, 4, -1)
        numbers = ("NHWC", "HWIO", "NHWC")
        z = jax.lax.conv_general_dilated(
            jnp.sin(image), p["k"], (1, 1), "SAME", dimension_numbers=numbers
        )
        return y @ p["w"] + y @ p["v"].T, z, y

    factor = np.ones(width, np.float32)
    factor[5] = 60
    params = {
        "outliers": factor,
        "w": normal(width, 12),
        "v": normal(12, width),
        "k": normal(3, 3, width, 8),
    }
    data = [[RNG.standard_normal((32, width)).astype(np.float32)] for _ in range(2)]
    return Model(f, params, tuple(data[0])), data


@pytest.mark.parametrize(("width", "gain"), [(64, 1.3), (60, 0.0)])
def test_the_float_program_is_the_same_and_the_quantized_one_better(width, gain):
    pipeline = load_pipeline("int8-dynamic", {"min_elements": 1, "recovery": "rotate-online"})
    plain = load_pipeline("int8-dynamic", {"min_elements": 1, "recovery": False})
    model, data = with_outliers(width)
    program = prepare(trace(model), plain, TARGET)
    copy, changed = rotated(program, data, pipeline, gain=gain, power=0)
    assert changed and (copy.weights["w"] != program.weights["w"]).any()
    same = (copy.weights["k"] == program.weights["k"]).all()
    assert same == (gain > 1)  # the convolution reads no outliers
    reference = outputs(program, data)
    for a, b in zip(outputs(copy, data), reference, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6 * width * np.abs(b).max())
    error = []
    for p in (program, copy):
        plan = make_plan(p, plain, TARGET)
        integer = rewrite(p, plain, PassContext(plan, plain.settings, TARGET))["integer"]
        error.append(((outputs(integer, data)[0] - reference[0]) ** 2).sum())
    assert error[1] < error[0]


@pytest.mark.parametrize(("pipeline", "sizes"), [("nvfp4", [0, 16]), ("int8-dynamic", [0])])
def test_the_better_of_blocks_and_whole_rows_is_taken(monkeypatch, pipeline, sizes):
    """Blocks are those of the activations' scales; int8 has none of a row's channels."""
    loaded = load_pipeline(pipeline, {"min_elements": 1, "recovery": "rotate-online"})
    model, data = with_outliers(128)
    program = prepare(trace(model), loaded, TARGET)
    gain, gains, taken = rotate_online._gain, {}, {}

    def tried(program, i, most, *given):
        own = gains.setdefault(i.name, {})
        own[most] = gain(program, i, most, *given)
        return own[most]

    monkeypatch.setattr(rotate_online, "_gain", tried)
    apply = rotate_online._apply
    monkeypatch.setattr(
        rotate_online,
        "_apply",
        lambda p, i, most: (taken.update({i.name: most}), apply(p, i, most)),
    )
    copy, _ = rotated(program, data, loaded, gain=0.0, power=0)
    assert gains.keys() == {"w", "k"} and all([*own] == sizes for own in gains.values())
    assert taken == {name: max(own, key=own.get) for name, own in gains.items()}
    for got, wanted in zip(outputs(copy, data), outputs(program, data), strict=True):
        np.testing.assert_allclose(got, wanted, atol=3e-4 * np.abs(wanted).max())


def test_no_data_and_widths_without_a_transform(caplog):
    pipeline = load_pipeline("int8-dynamic", {"recovery": "rotate-online"})
    data = [[RNG.standard_normal((8, 63)).astype(np.float32)]]
    program = trace(Model(lambda p, x: x @ p["w"], {"w": normal(63, 4)}, tuple(data[0])))
    assert not rotated(program, data, pipeline)[1]
    assert not rotated(program, None, pipeline)[1] and "without calibration data" in caplog.text
