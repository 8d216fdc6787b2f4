"""Learned codes: what regions compute, that codes are found back, and that a run can be resumed."""

import logging
import pkgutil
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.artifact.store import Cache
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.ir.autodiff.regions import regions, whole
from jq.ir.autodiff.rounding import Codes, Learned
from jq.passes.recovery import learn
from jq.passes.recovery.gptaq import Gptaq
from jq.passes.recovery.gptq import Gptq
from jq.passes.recovery.learn import Learn
from tests.passes.recovery import models
from tests.passes.recovery.models import context, mlp, normal
from tests.passes.recovery.test_gptq import after, outputs, two_products
from tests.support.programs import evaluated

RNG = np.random.default_rng(3)
INT3 = {
    "weights.format": "int3",
    "weights.scheme": "asymmetric",
    "weights.granularity": "per-block",
    "weights.block_size": 16,
    "weights.scale_type": "float16",
    "minutes": 1,
}
LONG = 1e6  # seconds: patience ends it, not time


def stack(layers=4, width=16):
    """Residual layers with a mask that all of them read."""

    def f(p, x, mask):
        for i in range(layers):
            x = x + jnp.tanh(x * mask @ p[f"up{i}"]) @ p[f"down{i}"]
        return x.sum(0), x

    params = {f"{k}{i}": normal(width, width) for i in range(layers) for k in ("up", "down")}
    data = RNG.standard_normal((5, width)).astype(np.float32), np.ones((5, 1), np.float32)
    return trace(Model(f, params, data)), data, list(params)


@pytest.mark.parametrize("most", [1 << 30, 8000, 1])
def test_regions_one_after_the_other_are_the_program(most):
    program, data, names = stack()
    found = regions(program, names, most)
    weights = {n: jnp.asarray(w) for n, w in program.weights.items()}
    known = dict(zip(program.body.arguments, data, strict=False))
    for region in found:
        known |= zip(
            region.outputs, region(weights, [known[v] for v in region.inputs]), strict=True
        )
    for got, want in zip(program.returned, evaluated(program, *data), strict=True):
        np.testing.assert_allclose(known[got], want, rtol=1e-5, atol=1e-5)
    assert sorted(n for region in found for n in region.weights) == sorted(names)
    assert len(found) >= 4  # a layer each at least
    assert len(whole(program, names).weights) == len(names)


@pytest.mark.parametrize("heads", [1, 64])
def test_a_mask_that_all_layers_repeat_moves_no_cut(heads):
    """It passes every place, in as many copies as there are heads."""
    rows, width, layers = 6, 8, 4

    def f(p, x, mask):
        x, wide = jnp.sin(x), jnp.broadcast_to(jnp.sin(mask), (heads, rows, width))
        for i in range(layers):
            y = jnp.tanh(x @ p[f"up{i}"]) + jnp.cos(x)
            x = x + (y + wide).mean(0) @ p[f"down{i}"]
        return x

    params = {f"{k}{i}": normal(width, width) for i in range(layers) for k in ("up", "down")}
    data = RNG.standard_normal((rows, width)).astype(np.float32), np.ones((1, width), np.float32)
    found = regions(trace(Model(f, params, data)), params, 1 << 30)
    assert [r.weights for r in found] == [(f"up{i}", f"down{i}") for i in range(layers)]


def test_a_loop_is_in_one_region():
    def f(p, x):
        y = jax.lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y @ p["a"]) + x.sum(), x)
        return y @ p["b"]

    x = RNG.standard_normal((3, 8)).astype(np.float32)
    program = trace(Model(f, {"a": normal(8, 8), "b": normal(8, 4)}, (x,)))
    weights = {n: jnp.asarray(w) for n, w in program.weights.items()}
    known = dict(zip(program.body.arguments, [x], strict=False))
    for region in regions(program, ["a", "b"], 1):
        known |= zip(
            region.outputs, region(weights, [known[v] for v in region.inputs]), strict=True
        )
    (want,) = evaluated(program, x)
    np.testing.assert_allclose(known[program.returned[0]], want, rtol=1e-5)


def test_codes_that_are_off_by_one_are_found_back():
    """A weight that codes can express, with blocks that do not divide its axis."""
    steps, scale = RNG.integers(-3, 4, (10, 6)).astype(np.float32), np.float32(0.1)
    zero = np.array([[1.0], [-1.0], [0.0]], np.float32) * np.ones((1, 6), np.float32)
    wide = np.repeat(zero, 4, axis=0)[:10]
    weight = (steps - wide) * scale
    x = RNG.standard_normal((64, 10)).astype(np.float32)
    program = trace(Model(lambda p, x: x @ p["w"], {"w": weight}, (x,)))
    off = np.clip(steps + (RNG.random(steps.shape) < 0.2), -4, 3).astype(np.float32)
    given = Codes(off, np.full((3, 6), scale), zero, (4, 1), (-4, 3))
    (region,) = regions(program, ["w"], 1 << 30)
    learned = Learned(region, dict(program.weights), {"w": given})
    assert not np.array_equal(learned.values()["w"], weight)
    found = learned.descend(learned.samples([[x]]), [[0]] * 60, rate=0.02, scale_rate=0)
    np.testing.assert_array_equal(found["w"]["codes"], steps)
    np.testing.assert_array_equal(found["w"]["scale"], given.scale)


def test_levels_that_are_off_by_one_are_found_back():
    rng, levels = np.random.default_rng(0), np.array([-6, -3, -1, 0, 0.5, 2, 6], np.float32)
    codes, scale = rng.integers(0, 7, (10, 6)), np.full((3, 6), 0.1, np.float32)
    weight = levels[codes] * np.float32(0.1)
    x = rng.standard_normal((64, 10)).astype(np.float32)
    program = trace(Model(lambda p, x: x @ p["w"], {"w": weight}, (x,)))
    off = np.clip(codes + (rng.random(codes.shape) < 0.2), 0, 6).astype(np.float32)
    given = Codes(off, scale, np.zeros((3, 6), np.float32), (4, 1), (0, 6), levels)
    (region,) = regions(program, ["w"], 1 << 30)
    learned = Learned(region, dict(program.weights), {"w": given})
    found = learned.descend(learned.samples([[x]]), [[0]] * 60, rate=0.02, scale_rate=1e-3)
    np.testing.assert_array_equal(found["w"]["codes"], codes)
    np.testing.assert_array_equal(found["w"]["scale"], scale)


@cache
def chosen(fmt="int3"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "RNG", np.random.default_rng(0))  # whatever was drawn before
        model, data = mlp()
    own = INT3 if fmt == "int3" else {"weights.format": fmt, "minutes": 1}
    program, cx = context(model, "int8-weight-only", data * 4, own)
    Gptq(outputs=False).run(program, cx)  # leaves something to find
    return program, data, cx


@pytest.mark.parametrize(("fmt", "most"), [("int3", 0.9), ("nvfp4", 1), ("uint3_zero", 0.95)])
def test_the_output_is_closer(fmt, most):
    given, data, cx = chosen(fmt)
    program = given.clone()
    run = learn._Run(Learn(steps=20, batch=4, patience=1), program, cx)
    state = run.until(LONG)
    curve = [error for _, error in state.curve]
    assert curve == sorted(curve, reverse=True)
    assert state.error < most * curve[0]
    learn.take_over(program, state.parts)
    reference = outputs(given, data)
    before, now = (((outputs(after(p, cx), data) - reference) ** 2).sum() for p in (given, program))
    assert now < before
    stored = program.chosen["down"]
    before = given.chosen["down"]
    assert {k: (a.shape, a.dtype) for k, a in stored.items()} == {
        k: (a.shape, a.dtype) for k, a in before.items()
    }


def test_the_whole_program_moves_codes_but_after_a_turn_that_found_nothing(monkeypatch):
    given, _, cx = chosen("int3")
    run = learn._Run(Learn(steps=8, batch=2), given.clone(), cx)
    run.units = [run.end]
    rates, descend = [], Learned.descend

    def spied(self, *args, rate, **how):
        rates.append(rate)
        return descend(self, *args, rate=rate, **how)

    monkeypatch.setattr(Learned, "descend", spied)
    errors = [error for _, error in run.until(LONG).curve][1:]
    better = [b < a for a, b in pairwise(errors)]
    assert True in better[:-1] and False in better[:-1]
    assert [rate > 0 for rate in rates] == [True, *better[:-1]]


class Killed(Exception):
    pass


def test_what_was_killed_goes_on_to_the_same_end(tmp_path, monkeypatch):
    """At drawn steps, so also amid a unit. From plain rounding: no other pass chose codes."""
    data = [[RNG.standard_normal((8, 32)).astype(np.float32)] for _ in range(16)]
    model = Model(lambda p, x: jnp.tanh(x @ p["w"]), {"w": normal(32, 8)}, tuple(data[0]))
    given, cx = context(model, "int8-weight-only", data, INT3)
    assert not given.chosen
    how = Learn(steps=4, batch=4, patience=2)  # so that two units are more than two turns
    slope_of, steps, last = Learned._slope_of, [], [0]

    def counted(self, *args):
        steps.append(args)
        if len(steps) == last[0]:
            raise Killed
        return slope_of(self, *args)

    def run(results, kill=0):
        steps.clear()
        last[0] = kill
        return learn._Run(how, given, replace(cx, results=results)).until(LONG)

    monkeypatch.setattr(Learned, "_slope_of", counted)
    straight, unit = run(None), how.steps * how.batch
    assert straight.units > 2 and len(steps) > 2 * unit
    for kill in RNG.integers(unit + 1, len(steps), 3):
        store = Cache("recovery", root=tmp_path / str(kill))
        with pytest.raises(Killed):
            run(store, kill)
        resumed = run(store)
        assert len(steps) <= unit * (len(straight.curve) - 2), kill  # no whole unit ran again
        assert [e for _, e in resumed.curve] == [e for _, e in straight.curve], kill
        for name, parts in straight.parts.items():
            for part, array in parts.items():
                np.testing.assert_array_equal(resumed.parts[name][part], array)


def test_it_starts_from_gptaq_where_that_is_closer_on_held_out_data(monkeypatch):
    """Fitted to the data that steps see, and no other."""
    (program, cx), *_ = two_products()
    cx = replace(cx, settings=cx.settings.model_copy(update={"minutes": 1.0}))
    Gptq().run(program, cx)
    seen, recover = [], Gptaq.recover

    def spied(self, copy, own):
        seen.append(self.batches_of(self._task(copy, own)))
        return recover(self, copy, own)

    monkeypatch.setattr(Gptaq, "recover", spied)
    run = learn._Run(Learn(), program, cx)
    (_, gptq), (_, gptaq) = run.until(0).curve
    assert gptaq < gptq
    assert seen == [[1, 2, 3, 4, 5, 6, 7]] and len(cx.data) == 8
    monkeypatch.setattr(learn, "Gptaq", lambda: Gptaq(earlier=-4.0))  # leads away
    assert [e for _, e in learn._Run(Learn(), program, cx).until(0).curve] == [gptq, gptq]
    named = replace(cx, settings=cx.settings.model_copy(update={"recovery": ("gptq",)}))
    assert len(learn._Run(Learn(), program, named).until(0).curve) == 1


def test_moments_that_gptq_took_are_not_taken_again(monkeypatch):
    """Gradients of the calibration data take longer than all rounding; the codes are the same."""
    seen = []
    for name in ("output_grams", "inputs.collect"):
        home, _, function = f"jq.passes.recovery.gptq.{name}".rpartition(".")
        made = getattr(pkgutil.resolve_name(home), function)
        spied = partial(lambda made, *args, **how: seen.append(made) or made(*args, **how), made)
        monkeypatch.setattr(f"{home}.{function}", spied)
    rows = [np.tanh(normal(64, 32)) for _ in range(4)]
    params, data = {k: normal(32, 32) for k in "ab"}, [(x,) for x in rows]
    model = Model(lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"], params, data[0], calibration=data)
    request = Request("int3-weight-only", settings={"min_elements": 1}, minutes=1e-9)
    job = prepare_job(model, request)
    context, found = job.context(job.plan(None)), []
    assert context.moments is not None
    for cx in (context, replace(context, moments=None)):
        program = job.program.clone()
        seen.clear()
        Gptq().run(program, cx)
        assert len(seen) == 2
        Learn().run(program, cx)
        found.append(program.chosen)
        assert len(seen) == (2 if cx.moments else 4)
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_without_minutes_it_does_not_run_and_says_where_there_is_nothing(caplog):
    model, data = mlp()
    assert not Learn().chosen(context(model, "int8-weight-only", data)[1].settings)
    program, cx = context(model, "int8-weight-only", data, {"minutes": 1})
    assert Learn().chosen(cx.settings)
    with caplog.at_level(logging.WARNING, "jq"):
        assert not Learn().run(program, cx)
    assert "learn was skipped: no weight is stored in codes of less than 8 bits" in caplog.text
