"""Warnings on outputs that are far from the float model's, with what makes it and what would help.

After calibration the float model's outputs of the first call are known: the program that was
compiled is run on it once.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jq.artifact.jobs.processes import call_apart
from jq.artifact.programs import choose
from jq.base.errors import JqError
from jq.driver.comparison.error_sum import FLOOR_DB
from jq.driver.comparison.layers import Calls, compare_layers
from jq.driver.comparison.outputs import compare_outputs, worst
from jq.driver.comparison.result import Comparison
from jq.driver.compiled import CompiledModel
from jq.driver.stages import rewrite_job
from jq.frontends.source import Data, Source
from jq.reporting.measuring.evaluation import evaluation_of
from jq.reporting.measuring.measure import plan_again
from jq.reporting.report.suggest import warning

FEW = 4  # calls by which the op is found


def after_calibration(compiled: CompiledModel, data: Sequence[Sequence[Any]] | None) -> str:
    """On the first of the calls that a model was calibrated with; empty where there is nothing to
    say, or nothing that runs here."""
    plan = compiled.plan
    if plan is None or not plan.reference or not data or choose(compiled.programs) is None:
        return ""
    inputs, names = tuple(map(np.asarray, data[0])), [o.name for o in compiled.outputs]
    try:
        outputs = compiled.call_flat(inputs)
        found = compare_outputs([plan.reference], [outputs], names=names)
        return _told(found, compiled, [inputs])
    except JqError:  # what does not run says so when it is called
        return ""


def after_comparing(
    source: Source, compiled: CompiledModel, found: Comparison, data: Data, calibration: Data
) -> str:
    """On what a comparison found."""
    if not _is_far(found):
        return ""
    try:
        calls = evaluation_of(source, data, None, ()).calls[:FEW]
        if compiled.plan is not None and compiled.levels:
            return _told(found, compiled, calls)
        job, plan = plan_again(source, compiled, calibration)
        levels = rewrite_job(job, plan, until="qdq")
        return _told(found, replace(compiled, plan=plan, levels=levels), calls)
    except JqError:  # without the model's data nobody knows which op it is
        return warning(found, compiled)


def _is_far(found: Comparison) -> bool:
    return worst(found.outputs)["sqnr_db"] < FLOOR_DB


def _told(found: Comparison, compiled: CompiledModel, calls: Calls) -> str:
    plan, levels = compiled.plan, compiled.levels
    if plan is None or not _is_far(found) or all(op.decision == "float" for op in plan.ops):
        return ""
    if not found.layers:
        inside = call_apart(compare_layers, levels["float"], levels["qdq"], plan, calls)
        found = replace(found, layers=inside.layers)
    return warning(found, compiled)
