"""Jobs that store encodings under several plans: none depends on another, wherever it runs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.artifact.jobs import Workers
from jq.driver.job import Job, prepare_job
from jq.driver.request import Request
from jq.mixed_precision.candidates import make_candidates
from jq.mixed_precision.encodings import Recoveries, RowGains, stored_weights
from jq.mixed_precision.problem import with_rules
from jq.passes.base import unheard
from jq.passes.pipeline import make_plan
from jq.passes.recovery import _inputs
from jq.passes.recovery.gptq import Gptq
from jq.planning.decisions import QuantPlan
from jq.planning.moments import collect
from jq.planning.moments.collect import MomentsCache
from jq.target.rules import Rule

RNG = np.random.default_rng(3)
PARAMS = {
    "a": RNG.standard_normal((64, 32)).astype(np.float32) / 8,
    "b": RNG.standard_normal((32, 64)).astype(np.float32) / 4,
}
CANDIDATES = ("int8-dynamic", "int4", "int8-weight-only", "int4-weight-only", "float")


def attend(params: Any, x: Any) -> Any:
    y = jnp.tanh(x @ params["a"]) @ params["b"]
    return y * (1 + jnp.mean(x, axis=0))


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest) -> None:
    """Beside other processes XLA optimizes as it does there: gradients have the same bits."""
    if request.function is not test_other_processes_find_the_same:
        request.getfixturevalue("quick_xla")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return job_of(20)


def job_of(batches: int) -> Job:
    scale = np.geomspace(0.1, 4, 64)
    samples = [
        ((RNG.standard_normal((24, 64)) * scale).astype(np.float32),) for _ in range(batches)
    ]
    model = jq.Model(attend, PARAMS, samples[0], calibration=samples)
    return prepare_job(model, Request("int8-dynamic", "llvm-cpu"))


def plans_of(job: Job, names: Sequence[str]) -> list[QuantPlan]:
    found = make_candidates(names, job.pipeline.settings, job.pipeline.name)
    jobs = [with_rules(job, [Rule(pattern="*", override=c.rule)]) for c in found]
    return [make_plan(j.program, j.pipeline, j.target, j.ranges) for j in jobs]


def content(stored: Any) -> dict[str, bytes]:
    return {f"{n}:{k}": v.tobytes() for n, s in stored.items() for k, v in s.parts.items()}


def test_the_order_of_plans_changes_nothing(job: Job) -> None:
    plans = plans_of(job, CANDIDATES)
    found = [content(s) for s in stored_weights(job, plans)]
    back = [content(s) for s in stored_weights(job, plans[::-1])][::-1]
    alone = [content(stored_weights(job, [plan])[0]) for plan in plans[::-1]][::-1]
    assert found == back == alone
    assert found[0] != found[1] and not found[-1]


def test_other_processes_find_the_same(job: Job, tmp_path: Path) -> None:
    plans = plans_of(job, CANDIDATES)
    here = [content(s) for s in stored_weights(job, plans)]
    assert [content(s) for s in stored_weights(job, plans, Workers(2))] == here
    kept = list((tmp_path / "jaxq" / "store").glob("job-*"))
    assert len(kept) >= 2  # of int4, and of none
    for path in kept:
        path.chmod(0o400)
    assert [content(s) for s in stored_weights(job, plans, Workers(2))] == here


def test_what_plans_ask_goes_along(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = plans_of(job, CANDIDATES)
    alone = [content(s) for s in stored_weights(job, plans)]
    knowing = replace(job, prepared=replace(job.prepared, moments=MomentsCache()))
    assert [content(s) for s in stored_weights(knowing, plans)] == alone
    fresh = replace(job, prepared=replace(job.prepared, moments=MomentsCache()))
    work = Recoveries.of(fresh, plans, unheard)
    work.look(1)
    other = pickle.loads(pickle.dumps(work.elsewhere())).open()
    monkeypatch.setattr(_inputs, "collect", lambda *a, **k: pytest.fail("it is known"))
    for opened in (other, Recoveries.of(knowing, plans, unheard).recovered):
        found = {k.partition(" ")[2]: v.tobytes() for k, v in opened((1,)).items()}
        assert found and found.items() <= alone[1].items()


def test_gains_are_found_once_for_all_plans(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[int, ...]] = []
    opened = RowGains.open

    def counted(work: RowGains) -> Any:
        call = opened(work)
        return lambda numbers: found.append(numbers) or call(numbers)

    monkeypatch.setattr(RowGains, "open", counted)
    monkeypatch.setattr(collect, "sensitivity", lambda *a: pytest.fail("they were found in front"))
    job.prepared.gains.known.clear()  # which `smooth` has found for the first of them
    stored_weights(job, plans_of(job, CANDIDATES))
    known = {sample for _, sample in job.prepared.gains.known}
    assert found and known == set(range(20))
    assert len({i for numbers in found for i in numbers}) == sum(map(len, found))


def test_moments_are_taken_once_for_all_plans(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    many = job_of(72)  # 8 bits alone would look at 64
    many = replace(many, prepared=replace(many.prepared, moments=MomentsCache()))
    taken, taking = [], _inputs.collect

    def counted(*args: Any, **options: Any) -> Any:
        taken.append(options["samples"])
        return taking(*args, **options)

    monkeypatch.setattr(_inputs, "collect", counted)
    stored_weights(many, plans_of(many, ("int8-dynamic", "int4")))
    assert taken == [list(range(72))]


def test_rows_that_all_count_alike(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, of = plans_of(job, CANDIDATES), Recoveries.of
    weighed = content(stored_weights(job, plans)[1])

    def alike(*args: Any) -> Recoveries:
        work = of(*args)
        passes = [replace(p, power=0.0) if isinstance(p, Gptq) else p for p in work.passes]
        return replace(work, passes=passes)

    monkeypatch.setattr(Recoveries, "of", alike)
    together = [content(s) for s in stored_weights(job, plans)]
    assert together == [content(stored_weights(job, [plan])[0]) for plan in plans]
    assert together[1] != weighed


def test_recovery_for_the_first_plan_alone(job: Job) -> None:
    plans = plans_of(job, CANDIDATES)
    whole = [content(s) for s in stored_weights(job, plans)]
    once = [content(s) for s in stored_weights(job, plans, once=True)]
    assert once[0] == whole[0] == once[2]  # of int8
    assert once[1] != whole[1]  # int4 is rounded plainly
