"""Recovery steps that are chosen by what they bring, where `minutes` are given.

A transform of activations (`rotate-online`) costs time in every call, so that it is no default.
Here the usual steps and others are fitted to most of some calibration data, and each program runs,
as the codes compute, on the rest. Others are taken where they leave a clearly smaller error, in
which a call that is far off counts more than many that are a little."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jq.base import Stages, UserError
from jq.driver.job import Job, check_matched, prepare_job
from jq.driver.request import Request
from jq.driver.stages import plan_job, rewrite_job
from jq.frontends.source import AnyModel, Calls, LazyCalls, Source, trace
from jq.ir.oracle.xla import XlaExecutable
from jq.mixed_precision.costs import spread
from jq.mixed_precision.switch import shares
from jq.passes.pipeline.file import as_overrides
from jq.target.settings import FLOAT

SAMPLES = 128  # calls that steps are fitted to and tried on
HELD = 4  # of so many one is not fitted to
GAIN = 1.3  # times smaller the error must be
OTHERS = (("rotate", "rotate-online", "gptq"), ("rotate", "rotate-online", "smooth", "gptq"))
CALIBRATED = ("equalize", "bias-correction")  # with each of them, as with the usual steps


def prepare_best(model: AnyModel, request: Request) -> Job:
    """The job of a request, which may have minutes to find its recovery steps in."""
    request.check()
    with request.stages("trace"):
        base, source = request.base, trace(model)
    check_matched(source, request)
    asked = base.settings.minutes and base.settings.recovery is True and not base.open
    floats = base.settings.activations.format == FLOAT
    if not asked or floats or source.others or request.ranges is not None:
        return prepare_job(source, request, several=True)
    there = {p.name for passes in base.passes.values() for p in passes}
    more = CALIBRATED if base.settings.activations.calibrated else ()
    tried = [(), *(steps + more for steps in OTHERS if there.issuperset(steps + more))]
    given = request.calibration
    own = source.model.calibration if source.model else None
    data = LazyCalls(lambda: source.calls(own if given is None else given))
    request, calls = replace(request, calibration=data), spread(data, SAMPLES)  # read once
    errors = {steps: _error(source, request, steps, calls) for steps in tried if calls[1:]}
    best = min(errors, key=errors.__getitem__, default=())
    if not best or errors[best] * GAIN > errors[()]:
        return prepare_job(source, request, several=True)
    job = prepare_job(source, _with(request, best), several=True)
    job.program.tell(
        f"recovery={','.join(best)}: noise over signal {errors[best]:.3g} on held-out calibration"
        f" data, {errors[()]:.3g} with the usual steps"
    )
    return job


def _with(request: Request, steps: Sequence[str]) -> Request:
    return replace(request, settings=as_overrides(request.settings) | {"recovery": list(steps)})


def _error(source: Source, request: Request, steps: Sequence[str], calls: Calls) -> float:
    """`uneven` of the outputs, on the calls that nothing was fitted to; infinite where it cannot
    be told, or the steps refuse the model: the usual ones say so themselves."""
    fitted = LazyCalls(lambda: [x for i, x in enumerate(calls) if i % HELD])
    own = _with(request, steps) if steps else request
    settings = as_overrides(own.settings) | {"minutes": 0.0}
    own = replace(own, settings=settings, minutes=0.0, calibration=fitted, stages=Stages())
    try:
        job = prepare_job(source, own)
        found = XlaExecutable(rewrite_job(job, plan_job(job, own.stages), "integer")["integer"])
        exact = XlaExecutable(source.program)
        pairs = [(exact(*x), found(*x)) for x in calls[::HELD]]
    except UserError:
        return math.inf
    error = uneven(shares(*zip(*pairs, strict=True)))
    return math.inf if math.isnan(error) else error


def uneven(of_calls: np.ndarray) -> float:
    """Noise over signal of calls that have these shares of it: that of all where they are equal,
    and more where one call is far off (the root of the mean square of what each has)."""
    return float(np.linalg.norm(of_calls)) * math.sqrt(len(of_calls))
