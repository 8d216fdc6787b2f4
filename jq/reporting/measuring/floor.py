"""Warnings on outputs that are far from the float model's, with what makes it and what would help.

After calibration the float model's outputs of the first call are known, of others XLA computes
them: the program that was compiled is run on that call once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jq.artifact.programs import choose
from jq.base.errors import JqError
from jq.driver.comparison.layers import Calls, compare_layers
from jq.driver.comparison.outputs import compare_outputs, worst
from jq.driver.comparison.result import FLOOR_DB, Comparison
from jq.driver.compiled import CompiledModel
from jq.frontends.source import Data, LazyCalls, Source
from jq.ir import Program
from jq.ir.ops.dims import work_of
from jq.ir.oracle.xla import XlaExecutable
from jq.reporting.measuring.evaluation import evaluation_of
from jq.reporting.measuring.measure import levels_of
from jq.reporting.report.suggest import warning

FEW = 4  # calls by which the op is found
WORK = 400_000_000  # operations of a call that XLA may take without optimizations: a second
TRIPS = 1000  # of a loop, of which nobody knows how many there are
LARGEST = 256 << 20  # bytes of weights, which are copied


def after_compiling(compiled: CompiledModel, data: Sequence[Sequence[Any]] | None) -> str:
    """A verdict on the first of the calls of the data that it was compiled with, if these are there
    already, else on its example inputs; empty where there is nothing to say, nothing that runs
    here, or no float model that runs quickly."""
    plan, source = compiled.plan, compiled.source
    if plan is None or choose(compiled.programs) is None or plan.is_float:
        return ""
    names = [o.name for o in compiled.outputs]
    try:
        there = data is not None and (not isinstance(data, LazyCalls) or data.made)
        inputs = tuple(map(np.asarray, data[0])) if there and data else ()
        if not inputs and (owner := source.model) and owner.example_inputs:
            inputs = tuple(source.calls([owner.example_inputs])[0])
        known = plan.reference if there and data else ()
        reference = known or _reference(source.program, inputs)
        if not reference:
            return ""
        found = compare_outputs([reference], [compiled.call_flat(inputs)], names=names)
        return _told(found, compiled, [inputs])
    except JqError:  # what does not run says so when it is called
        return ""


def _reference(program: Program, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs of the float model, op by op; none of a model that takes long, or fails."""
    loops = any(op.operation.name == "stablehlo.while" for op in program.walk())
    work, size = work_of(program).total, sum(w.nbytes for w in program.weights.values())
    if not inputs or work * (TRIPS if loops else 1) > WORK or size > LARGEST:
        return ()
    try:
        return tuple(XlaExecutable(program, optimized=False)(*inputs))
    except Exception:  # XLA's failure is none of the artifact
        return ()


def after_comparing(
    source: Source, compiled: CompiledModel, found: Comparison, data: Data, calibration: Data
) -> str:
    """A verdict on what a comparison found."""
    if not _is_far(found):
        return ""
    try:
        calls = evaluation_of(source, data, None, ()).calls[:FEW]
        levels, plan = levels_of(source, compiled, calibration)
        return _told(found, replace(compiled, plan=plan, levels=levels), calls)
    except JqError:  # without the model's data nobody knows which op it is
        return warning(found, compiled)


def _is_far(found: Comparison) -> bool:
    return worst(found.outputs)["sqnr_db"] < FLOOR_DB


def _told(found: Comparison, compiled: CompiledModel, calls: Calls) -> str:
    plan, levels = compiled.plan, compiled.levels
    if plan is None or not _is_far(found) or plan.is_float:
        return ""
    if not found.layers:
        inside = compare_layers(levels["float"], levels["qdq"], plan, calls)
        found = replace(found, layers=inside.layers, activations=inside.activations)
    return warning(found, compiled)
