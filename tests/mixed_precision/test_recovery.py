"""Recovery steps by trial: rotations where they bring more than they cost, else the usual steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.driver.request import Request
from jq.ir.oracle.xla import XlaExecutable
from jq.mixed_precision import switch
from jq.mixed_precision.recovery import prepare_best, uneven

WIDTH = 64
MINUTES = {"min_elements": 1, "minutes": 0.01}


def network(seed=0):
    rng = np.random.default_rng(seed)
    params = {k: (rng.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32) for k in "ab"}
    return lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"], params


def rows(seed, outliers, count=16):
    """Normal rows; with `outliers` each has one large number, in a channel of its own, which no
    factor of a channel makes up for."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((count, 8, WIDTH)).astype(np.float32)
    if outliers:
        places = rng.integers(0, WIDTH, (count, 8, 1))
        np.put_along_axis(found, places, rng.choice([-30, 30], places.shape), axis=-1)
    return [(x,) for x in found]


def model(outliers):
    f, params = network()
    data = rows(1, outliers)
    return jq.Model(f, params, data[0], calibration=data)


def noise(found, source, data):
    ours, exact = (XlaExecutable(p) for p in (found, source))
    pairs = [(ours(*x)[0], exact(*x)[0]) for x in data]
    return sum(((a - b) ** 2).sum() for a, b in pairs)


@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int8-static"])
def test_rotations_are_taken_where_rows_have_outliers_of_their_own(pipeline):
    source = jq.trace(model(outliers=True))
    job = prepare_best(source, Request(pipeline, settings=MINUTES))
    steps = job.pipeline.settings.recovery
    assert "rotate-online" in steps and ("bias-correction" in steps) == ("static" in pipeline)
    assert job.pipeline.settings.minutes == MINUTES["minutes"]
    (note,) = (n for n in job.program.notes if n.startswith("recovery="))
    assert note.startswith(f"recovery={','.join(steps)}: noise over signal ")
    with_steps, usual = (
        jq.rewrite(source, pipeline=pipeline, settings={"min_elements": 1, "recovery": own})
        for own in (list(steps), True)
    )
    data = rows(2, outliers=True)  # of neither the fit nor the trial
    better, worse = (noise(p["integer"], source.program, data) for p in (with_steps, usual))
    assert better * 1.2 < worse


@pytest.mark.parametrize(
    ("settings", "outliers"),
    [
        (MINUTES, False),
        ({"min_elements": 1}, True),  # no minutes
        (MINUTES | {"recovery": "gptq"}, True),  # steps that the user named
    ],
)
def test_the_usual_steps_stay(settings, outliers):
    job = prepare_best(model(outliers), Request("int8-dynamic", settings=settings))
    asked = settings.get("recovery", True)
    assert job.pipeline.settings.recovery == (asked if asked is True else (asked,))
    assert not any(note.startswith("recovery=") for note in job.program.notes)


@pytest.mark.parametrize(
    ("target", "pipeline", "count"),
    [("npu-int8", "int8-static-integer-only", 4), ("llvm-cpu", "int8-static", 1)],
)
def test_a_pipeline_without_rotations_and_a_single_call_are_no_error(target, pipeline, count):
    f, params = network()
    data = rows(3, True, count)
    few = jq.Model(f, params, data[0], calibration=data)
    job = prepare_best(few, Request(pipeline, target, settings=MINUTES))
    assert job.pipeline.settings.recovery is True


def test_data_that_can_be_read_once_are_enough(monkeypatch):
    monkeypatch.setattr("jq.mixed_precision.recovery._error", lambda *given: 1.0)
    f, params = network()
    data = rows(4, False)
    plain = jq.Model(f, params, data[0])
    job = prepare_best(plain, Request("int8-static", settings=MINUTES, calibration=iter(data)))
    assert len(job.data) == len(data)


def test_what_is_wrong_is_refused_before_any_trial():
    request = Request("int8-dynamic", settings=MINUTES, calibration="nowhere.npz")
    with pytest.raises(UserError, match="no such file"):
        prepare_best(model(True), request)


def test_steps_that_refuse_a_model_are_not_taken(monkeypatch):
    from jq.mixed_precision import recovery

    def refusing(source, request, **options):
        if "rotate-online" in (request.settings or {}).get("recovery", ()):
            raise UserError("no rotation")
        return prepared(source, request, **options)

    prepared = recovery.prepare_job
    monkeypatch.setattr(recovery, "prepare_job", refusing)
    job = prepare_best(jq.trace(model(outliers=True)), Request("int8-dynamic", settings=MINUTES))
    assert job.pipeline.settings.recovery is True


def test_shares_are_those_of_calls_and_add_up_to_the_noise():
    rng = np.random.default_rng(0)
    exact = [[rng.standard_normal(5), rng.standard_normal((2, 3)), np.arange(2)] for _ in range(4)]
    found = [[x + 0.1 * rng.standard_normal(x.shape) for x in call] for call in exact]
    signal = [sum((call[i] ** 2).sum() for call in exact) for i in (0, 1)]
    expected = [
        sum(((a[i] - b[i]) ** 2).sum() / signal[i] for i in (0, 1))
        for a, b in zip(exact, found, strict=True)
    ]
    np.testing.assert_allclose(switch.shares(exact, found), expected)
    assert switch.noise(exact, found) == pytest.approx(sum(expected))
    found[2][1][0, 0] = np.nan
    assert switch.noise(exact, found) == np.inf
    whole = [[np.array([1, 2, 3, 4])], [np.array([1, 2])]]
    other = [[np.array([1, 2, 3, 5])], [np.array([2, 2])]]
    np.testing.assert_allclose(switch.shares(whole, other), [0.125, 0.25])
    silent = [[np.zeros(3)], [np.zeros(3)]]
    assert (
        switch.noise(silent, silent) == 0
        and switch.noise(silent, [[np.ones(3)], [np.zeros(3)]]) == np.inf
    )


def test_steps_that_leave_one_call_far_off_are_not_taken(monkeypatch):
    assert uneven(np.full(4, 0.25)) == pytest.approx(1) and uneven(np.eye(4)[1]) == 2
    usual, others = np.full(4, 0.3), np.array([0.8, 0.0, 0.0, 0.0])  # less in all, but in one call
    given = iter([usual, *[others] * 9])
    monkeypatch.setattr("jq.mixed_precision.recovery.shares", lambda *outputs: next(given))
    job = prepare_best(jq.trace(model(outliers=True)), Request("int8-dynamic", settings=MINUTES))
    assert job.pipeline.settings.recovery is True
