"""Layers whose channels, weights and inputs have exponents from all of float32.

A channel of the result is right where its noise, against float64, is below `MOST` of its signal: a
channel that collapsed is all noise. Its signal are the terms of its sums, as those that cancel
leave their noise. Free are only channels that leave float32, or whose signal is below `LEAST`:
there the product of two scales is smaller than any normal number, which processors take for 0.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import jq
from jq.base.errors import UserError
from jq.ir.oracle.xla import XlaExecutable
from suites.outcome import FAILED, REFUSED, RIGHT, WRONG, Outcome

WIDTH, HIDDEN, OUT = 16, 12, 6
MOST = {"int8": 0.25, "int4": 0.5}
LEAST, LARGEST = 2.0**-90, 2.0**120
PIPELINES = ("int8-static", "int8-dynamic", "int8x16-static", "int8-weight-only", "int4-dynamic")
RECOVERY = (True, False, ["gptq"], ["clip"], ["smooth"], ["bias-correction"])


@dataclass(frozen=True)
class Drawn:
    """`relu(x @ first * unit) @ second`, or the second product alone without `first`."""

    params: dict[str, Any]
    samples: list[np.ndarray]
    pipeline: str
    recovery: Any

    def __call__(self, params: dict[str, Any], x: Any) -> Any:
        if "first" in params:
            x = (x @ params["first"]["kernel"]).clip(0)
        return x @ params["second"]["kernel"]

    def exact(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The result, and the root of the sum of the squares of the terms of each number."""
        wide = {k: {"kernel": v["kernel"].astype(np.float64)} for k, v in self.params.items()}
        x = x.astype(np.float64)
        rows = (x @ wide["first"]["kernel"]).clip(0) if "first" in wide else x
        return np.asarray(self(wide, x)), np.sqrt(rows**2 @ wide["second"]["kernel"] ** 2)


def drawn(seed: int) -> Drawn:
    """Exponents of channels of the second weight from the largest of float32 to the smallest whose
    scale is a normal number; of the first weight and of the inputs one each."""
    rng = np.random.default_rng((9, seed))
    two, inputs = rng.random() < 0.5, int(rng.choice([0, 0, -20, 20, -60, 60]))
    hidden = int(rng.choice([0, -30, 30, -50, 50])) if two else 0
    width = HIDDEN if two else WIDTH
    exponents = rng.integers(-112, 124, OUT)
    exponents[rng.random(OUT) < 0.4] = 0
    second = rng.standard_normal((width, OUT))
    params: dict[str, Any] = {"second": {"kernel": np.ldexp(second, exponents).astype(np.float32)}}
    if two:
        first = np.ldexp(rng.standard_normal((WIDTH, width)), hidden)
        params["first"] = {"kernel": first.astype(np.float32)}
    samples = [np.ldexp(rng.standard_normal((4, WIDTH)), inputs).astype(np.float32) for _ in "1234"]
    recovery, pipeline = RECOVERY[rng.integers(len(RECOVERY))], str(rng.choice(PIPELINES))
    return Drawn(params, samples, pipeline, recovery)


@dataclass(frozen=True)
class Case:
    seed: int
    iree: bool = False


def identify(case: Case) -> tuple[str, str]:
    return "exponents", str(case.seed)


def judge(cases: Sequence[Case]) -> list[Outcome | None]:
    """The outcome of one case."""
    logging.disable(logging.WARNING)
    (case,) = cases
    network = drawn(case.seed)
    try:
        said = wrong(network, case.iree)
        return [Outcome(*identify(case), WRONG if said else RIGHT, said)]
    except Exception as error:
        said = str(error).partition("\n")[0][:300]
        refused = isinstance(error, UserError) and "/kernel" in said
        return [Outcome(*identify(case), REFUSED if refused else FAILED, said)]


def wrong(network: Drawn, iree: bool) -> str:
    """The channels that are not right; empty if all are."""
    samples = [(x,) for x in network.samples]
    model = jq.Model(network.__call__, network.params, samples[0], calibration=samples)
    settings: Any = {"recovery": network.recovery, "weights.scale_type": "float32"}
    given: dict[str, Any] = {"pipeline": network.pipeline, "settings": settings}
    x = network.samples[0]
    if iree:
        got = np.asarray(jq.compile(model, cache=False, **given)(x))
    else:
        got = XlaExecutable(jq.rewrite(model, **given)["integer"])(x)[0]
    exact, terms = network.exact(x)
    most = MOST["int4" if "int4" in network.pipeline else "int8"]
    with np.errstate(over="ignore", invalid="ignore"):
        signal, noise = (
            np.linalg.norm(v / 2.0**60, axis=0) * 2.0**60 for v in (terms, got - exact)
        )
    counted = (np.abs(exact).max(0) < LARGEST) & (signal > LEAST)
    bad = np.flatnonzero(counted & ~(noise <= most * signal))
    return "; ".join(f"channel {i}: noise {noise[i]:.2g} of {signal[i]:.2g}" for i in bad)
