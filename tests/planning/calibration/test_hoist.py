"""Activations inside loops and branches: every value they ever have is seen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.base.errors import UserError
from jq.frontends.model import Model
from jq.frontends.tracing import trace
from jq.planning.calibration import run
from jq.planning.calibration.observer import get_observer
from jq.planning.calibration.run import calibrate, instrument

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 4)).astype(np.float32)
STACK = RNG.standard_normal((3, 4, 4)).astype(np.float32)
X = RNG.standard_normal((2, 4)).astype(np.float32)


def ranges(fn, *batches, method="minmax"):
    """Observed ranges of the left operands (weights that are moved are observed too)."""
    program = trace(Model(fn, {"w": W, "s": STACK}, (batches[0],)))
    found = calibrate(program, [[b] for b in batches], method)
    return {name: (r.low, r.high) for name, r in found.sites.items() if name.endswith(":0")}


def extremes(values) -> tuple[float, float]:
    values = [np.asarray(v) for v in values]
    return min(float(v.min()) for v in values), max(float(v.max()) for v in values)


def check(found, values):
    ((low, high),) = found.values()
    assert (low, high) == pytest.approx(extremes(values), rel=1e-5)


def test_scan_over_layers():
    def fn(p, x):
        return jax.lax.scan(lambda h, w: (jnp.sin(h @ w) * 2, None), x, p["s"])[0]

    seen, h = [], X
    for w in STACK:
        seen.append(h)
        h = np.sin(h @ w) * 2
    check(ranges(fn, X), seen)


def test_while_that_grows():
    def fn(p, x):
        return jax.lax.while_loop(lambda h: jnp.max(jnp.abs(h)) < 100, lambda h: h @ p["w"] * 2, x)

    seen, h = [], X
    while np.abs(h).max() < 100:
        seen.append(h)
        h = h @ W * 2
    assert len(seen) > 2
    check(ranges(fn, X), seen)


def test_nested_loops():
    def inner(p, h, start):
        return jax.lax.fori_loop(0, 2, lambda i, v: jnp.cos(v @ p["w"]) + start, h)

    def fn(p, x):
        return jax.lax.fori_loop(0, 3, lambda i, h: inner(p, h, i.astype(jnp.float32)), x)

    seen, h = [], X
    for i in range(3):
        for _ in range(2):
            seen.append(h)
            h = np.cos(h @ W) + np.float32(i)
    check(ranges(fn, X), seen)


def branches(p, x):
    return jax.lax.cond(x[0, 0] > 0, lambda v: (v * 3) @ p["w"], lambda v: v @ p["w"].T, x)


def test_branches_are_observed_when_they_are_taken():
    positive = np.abs(X)
    found = ranges(branches, positive, -positive)
    want = [extremes([-positive]), extremes([positive * 3])]
    np.testing.assert_allclose(sorted(found.values()), want, rtol=1e-6)


def test_branches_that_read_one_value_are_observed_each():
    def fn(p, x):
        return jax.lax.cond(x[0, 0] > 0, lambda v: v @ p["w"], lambda v: v @ p["w"].T, x)

    assert len(ranges(fn, np.abs(X))) == len(ranges(fn, -np.abs(X))) == 1
    assert len(ranges(fn, np.abs(X), -np.abs(X))) == 2


def test_a_branch_that_is_never_taken_has_no_range():
    found = ranges(branches, np.abs(X))
    assert list(found.values()) == [pytest.approx(extremes([np.abs(X) * 3]))]


def test_a_branch_inside_a_loop():
    def fn(p, x):
        def body(i, h):
            return jax.lax.cond(i % 2 == 0, lambda v: v @ p["w"], lambda v: v + 1, h)

        return jax.lax.fori_loop(0, 4, body, x)

    seen, h = [], X
    for i in range(4):
        if i % 2 == 0:
            seen.append(h)
            h = h @ W
        else:
            h = h + 1
    check(ranges(fn, X), seen)


def test_a_loop_that_runs_no_time():
    def fn(p, x):
        return jax.lax.while_loop(lambda h: jnp.max(h) > 1e9, lambda h: h @ p["w"], x)

    assert ranges(fn, X) == {}


@pytest.mark.parametrize("method", ["minmax", "mse", "average"])
def test_every_method_sees_every_iteration(method):
    """The extremes are those of all iterations, whatever the method then makes of them."""

    def fn(p, x):
        return jax.lax.fori_loop(0, 4, lambda i, h: jnp.tanh(h @ p["w"]) * (i + 1), x)

    seen, h = [], X
    for i in range(4):
        seen.append(h)
        h = np.tanh(h @ W) * (i + 1)
    if method == "average":  # of every sample's own extremes: one iteration is one observation
        low, high = np.mean([extremes([v]) for v in seen], axis=0)
        ((got_low, got_high),) = ranges(fn, X, method=method).values()
        assert got_low <= low and got_high >= 0
    else:
        ((low, high),) = ranges(fn, X, method=method).values()
        assert (low, high) == pytest.approx(extremes(seen), rel=0.02)


def test_the_outputs_stay_what_they_were():
    program = trace(Model(branches, {"w": W, "s": STACK}, (X,)))
    copy, sites = instrument(program, get_observer("minmax"))
    assert {"w:0", "w#2:0"} <= set(sites)
    assert len(copy.returned) == 1 + 2 * len(sites)
    assert len(program.returned) == 1


@pytest.mark.parametrize("method", ["minmax", "octav", "average"])
def test_small_activations_are_measured_outside_of_the_program(monkeypatch, method):
    program = trace(Model(lambda p, x: branches(p, x) @ p["s"][0], {"w": W, "s": STACK}, (X,)))
    places = instrument(program, get_observer(method), small=X.size)[1].values()
    assert {handed for _, handed, _ in places} == {False, True}
    inside, outside = (
        monkeypatch.setattr(run, "NUMBERS", most) or calibrate(program, [[X], [-5 * X]], method)
        for most in (0, 2 * X.size)
    )
    assert inside.text() == outside.text()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0), (1, 3)])
def test_what_is_not_finite_is_named(bad, where):
    x = X.copy()
    x[where] = bad
    with pytest.raises(UserError, match=r"NaN or infinity in sample 1 .*\[w:0\]"):
        ranges(lambda p, v: v @ p["w"], X, x)


def test_no_data():
    with pytest.raises(UserError, match="no calibration data"):
        calibrate(trace(Model(branches, {"w": W, "s": STACK}, (X,))), [])
