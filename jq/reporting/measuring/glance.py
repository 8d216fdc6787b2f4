"""A compiled model beside its float model on some samples: what `jaxq compile` ends with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.artifact.programs import choose
from jq.base.errors import UserError
from jq.base.progress import Progress, silent
from jq.driver.comparison.layers import compare_layers
from jq.driver.comparison.outputs import worst
from jq.driver.comparison.result import Comparison
from jq.driver.compiled import CompiledModel
from jq.ir import Program
from jq.ir.ops.work import work_of
from jq.reporting.measuring.evaluation import evaluation_of
from jq.reporting.measuring.measure import compare_compiled
from jq.reporting.measuring.verdict import furthest, layer_verdict, outputs_verdict

FEW, MANY = 4, 1000  # calls
WORK = 4_000_000_000  # multiplications of all calls: a second or two, three times
LARGEST = 512 << 20  # bytes of float weights, which are in memory several times while XLA runs
LEAVE_OUT = "--no-measure leaves this out"


@dataclass(frozen=True)
class Glance:
    """Attributes:
    found: the comparison, if there was anything to run.
    whole: whether it is of the whole evaluation set, as that of `jaxq compare`.
    failure: why it could not be made, where it was tried.
    """

    found: Comparison | None = None
    whole: bool = False
    failure: str = ""


def at_a_glance(compiled: CompiledModel, progress: Progress = silent) -> Glance:
    """Outputs and layers of a model that was compiled in this process, on as many of its samples
    as take a few seconds.

    Without a comparison where there is nothing to run: no data, a program for another machine, a
    model that is too large to be run again on the way. A failure here is none of the artifact.
    """
    source, plan, levels = compiled.source, compiled.plan, compiled.levels
    if source is None or plan is None or choose(compiled.programs) is None:
        return Glance()
    if sum(np.asarray(w).nbytes for w in source.program.weights.values()) > LARGEST:
        return Glance()
    try:
        given = evaluation_of(source, None, None, ())
        some = replace(given, calls=given.calls[: _calls(source.program)], labels=None)
        inside = compare_layers(levels["float"], levels["qdq"], plan, some.calls, progress)
        found = compare_compiled(some, compiled, progress, inside)
        return Glance(found, len(some.calls) == len(given.calls))
    except UserError:  # no data, or other inputs than the float model has
        return Glance()
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return Glance(failure=f"it was not compared with the float model: {reason}; {LEAVE_OUT}")


def _calls(program: Program) -> int:
    """Number of affordable calls, which no clock decides: the same are compared every time."""
    work = work_of(program)
    return max(FEW, min(MANY, WORK // max(1, work.products + work.convolutions)))


def verdict(glance: Glance, smaller: str) -> str:
    """Smaller by, close to float, the worst layer: sentences for people. A layer is named where
    `jaxq compare --layers` names the same one."""
    parts, found = [smaller, glance.failure], glance.found
    if found is not None:
        parts += [outputs_verdict(found), layer_verdict(found.layers) if glance.whole else ""]
    return "\n".join(f"{part[0].upper()}{part[1:]}." for part in parts if part)


def document(glance: Glance) -> dict[str, Any] | None:
    """The same for programs."""
    found = glance.found
    if found is None:
        return {"failure": glance.failure} if glance.failure else None
    errors = worst(found.outputs)
    bad = next(iter(furthest(found.layers)), None) if glance.whole else None
    return {
        "samples": found.samples,
        "sqnr_db": errors["sqnr_db"],
        "cosine_min": errors["cosine_min"],
        "worst_layer": None
        if bad is None
        else {
            "name": bad.name,
            "sqnr_db": bad.sqnr_db,
            "isolated_sqnr_db": bad.isolated_sqnr_db,
        },
    }
