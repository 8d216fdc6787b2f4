"""A search for a device that is not at hand: latency by its target file, checked on the result."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.base.progress import Stages
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.mixed_precision.candidates import make_candidates
from jq.mixed_precision.problem import make_problem
from jq.mixed_precision.speed import estimated_cycles

RNG = np.random.default_rng(2)
PARAMS = {
    name: RNG.standard_normal(shape).astype(np.float32) / 8
    for name, shape in (("first", (64, 256)), ("second", (256, 64)), ("third", (64, 64)))
}
X = RNG.standard_normal((16, 64)).astype(np.float32)
HARDWARE = """
[hardware]
macs_per_cycle = { "int8 x int8" = 8%s }
clock_mhz = 100
elements_per_cycle = 1e6
sram_bytes = 1048576
sram_bytes_per_cycle = 1e6
dram_bytes_per_cycle = 1e6
"""


def model() -> jq.Model:
    def fn(p, x):
        x = jnp.maximum(x @ p["first"], 0)
        return jnp.maximum(x @ p["second"], 0) @ p["third"]

    return jq.Model(fn, PARAMS, (X,), calibration=[(X,)], evaluation=[(X,)])


def device(tmp_path: Path, rates: str) -> str:
    path = tmp_path / "own.toml"
    path.write_text(Path("targets/llvm-cpu.toml").read_text() + HARDWARE % rates)
    return str(path)


def test_what_is_chosen_takes_what_the_estimate_says(tmp_path: Path) -> None:
    """First and second have 262144 multiply-adds each, the third 65536; float takes 8 times of
    int8, so there is time for the third in float alone."""
    target = device(tmp_path, ', "float32 x float32" = 1')
    found = jq.search(
        model(),
        "latency<=2",
        "int8-static",
        target,
        candidates=("float", "int8-static"),
        samples=1,
        state=tmp_path / "state.json",
    )
    assert {row.name: row.choice for row in found.layers} == {
        "first": "int8-static",
        "second": "int8-static",
        "third": "float",
    }
    mixed = found.file.save(tmp_path / "mixed.toml")
    ours = jq.estimate(model(), target, pipeline=str(mixed))["total_ms"]
    base = jq.estimate(model(), target, pipeline="int8-static")["total_ms"]
    assert found.resources["latency"] == pytest.approx(ours / base, rel=1e-3)
    assert found.resources["latency"] == pytest.approx((2 * 4 + 8) / 9, rel=0.02)


def test_auto_takes_the_estimate_s_model_of_a_device(tmp_path: Path) -> None:
    """Products alone bound these layers: of int8, and of floats where their rate is stated."""
    for rates, floats in ((', "float32 x float32" = 1', 1.0), ("", 0.0)):
        target = device(tmp_path, rates)
        job = prepare_job(jq.trace(model()), Request("int8-static", target))
        settings = job.pipeline.settings
        candidates = make_candidates(("float", "int8-static"), settings, "int8-static")
        problem = make_problem(job, candidates, Stages())
        cycles = dict(
            zip((g.name for g in problem.groups), estimated_cycles(problem).options, strict=True)
        )
        rows = jq.estimate(model(), target, pipeline="int8-static")["layers"]
        for name, work in (("first", 262144), ("third", 65536)):
            assert cycles[name] == [work / floats if floats else np.inf, work / 8]
            assert work / 8 in [row["cycles"] for row in rows if row["name"].startswith(name)]


def test_a_rate_that_is_not_stated(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no rate of float32 x float32"):
        jq.search(
            model(),
            "latency<=2",
            "int8-static",
            device(tmp_path, ""),
            samples=1,
            state=tmp_path / "state.json",
        )
