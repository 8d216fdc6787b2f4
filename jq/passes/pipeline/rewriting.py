"""Runs the passes of a pipeline: from the traced program to every level."""

from collections.abc import Mapping, Sequence

import numpy as np

from jq.ir import Program
from jq.ir.quantized.markers import to_quant_types
from jq.passes.base import PassContext, run_all
from jq.passes.dequantized import dequantized
from jq.passes.levels import check_level
from jq.passes.lower_markers import LowerMarkers
from jq.passes.order import LEVELS, Level
from jq.passes.pipeline.loaded import Pipeline
from jq.planning.calibration.ranges import Ranges
from jq.planning.decisions import QuantPlan
from jq.planning.planner import plan
from jq.target.target import Target

FlatBatches = Sequence[Sequence[np.ndarray]] | None  # calibration: flat inputs, batch by batch


def prepare(
    program: Program,
    pipeline: Pipeline,
    target: Target,
    data: FlatBatches = None,
    cx: PassContext | None = None,
) -> Program:
    """The float program as planning and calibration see it: a copy, with float passes run."""
    prepared = program.clone()
    cx = cx or PassContext(QuantPlan((), {}), pipeline.settings, target, data)
    run_all(pipeline.passes["float"], prepared, cx)
    return prepared


def make_plan(
    program: Program, pipeline: Pipeline, target: Target, ranges: Ranges | None = None
) -> QuantPlan:
    """The plan for a prepared program."""
    return plan(program, pipeline.settings, target, pipeline.rules, ranges, pipeline.explicit)


class Levels(dict[Level, Program]):
    """A program at every level, each of them a program of its own.

    Attributes:
        dequantized: where integers become floats again, and why; see `jq.passes.dequantized`.
        marked: the integer level with its markers, as kernels and writers of other forms read it.
    """

    dequantized: list[dict[str, str]]
    marked: Program

    def __init__(self, levels: Mapping[Level, Program] | None = None) -> None:
        super().__init__(levels or {})
        self.dequantized = []


def rewrite(
    program: Program, pipeline: Pipeline, cx: PassContext, until: Level = "target"
) -> Levels:
    """A prepared float program at every level, or at those up to `until` (`qdq`, `target`)."""
    levels = Levels({"float": program})
    for level in LEVELS[1 : LEVELS.index(until) + 1]:
        program = program.clone()
        run_all(pipeline.passes[level], program, cx)
        levels[level] = program
    if "integer" in levels:
        _open_markers(levels, cx)
    for level, reached in levels.items():
        check_level(reached, level)
    if cx.settings.weights.emit == "quant-type":
        levels["qdq"] = levels["qdq"].clone()
        to_quant_types(levels["qdq"], strict=True)
        levels["qdq"].verify()
    return levels


def _open_markers(levels: Levels, cx: PassContext) -> None:
    """The target starts from markers, where kernels see whole chains; the integer level that is
    emitted is plain."""
    levels.marked = levels["integer"]
    levels.dequantized = dequantized(levels.marked, cx)
    levels["integer"] = levels.marked.clone()
    run_all([LowerMarkers()], levels["integer"], cx)
