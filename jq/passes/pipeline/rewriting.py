"""Runs the passes of a pipeline: from the traced program to every level."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from jq.base.errors import UserError
from jq.ir import NAME, Op, Program, string_attr
from jq.ir.markers import marker_kind
from jq.ir.quantized.markers import to_quant_types
from jq.passes.base import PassContext, known_passes, run_all
from jq.passes.iree_mends.mend import Mend
from jq.passes.lower_markers import LowerMarkers, dequantized
from jq.passes.order import LEVELS, Level
from jq.passes.pipeline.file import Pipeline
from jq.planning.calibration.ranges import Ranges
from jq.planning.decisions import QuantPlan
from jq.planning.planner import plan
from jq.target.target import Target

# Levels: what must not be left in a program of each, and the pass that takes it away.
#
# Checked after the passes of a level have run: a program that the compiler would get wrong is
# never handed over.
Ban = tuple[str, Callable[[Op], object], str]  # a kind of ops, what finds them, what to do
UNKNOWN = "the pass {} does not know how to rewrite it"


def _of_types(*names: str) -> Callable[[Op], bool]:
    """True of an op that reads or makes a value with one of these in its type."""
    return lambda op: any(n in str(v.type) for v in (*op.operands, *op.results) for n in names)


@cache
def _bans(level: str) -> tuple[Ban, ...]:
    remedy = UNKNOWN.format("lower-markers")
    plain = (
        (f"a marker is left at level {level}", marker_kind, remedy),
        (f"a quantized type is left at level {level}", _of_types("!quant."), remedy),
    )
    float4 = (
        "IREE does not compute with float4_e2m1fn",
        _of_types("xf4E2M1FN>", "<f4E2M1FN>"),
        "convert to float8_e4m3fn, which has these numbers too, or let a weight be quantized to it",
    )
    mends = [kind for kind in known_passes().values() if issubclass(kind, Mend)]
    finding = [kind for kind in mends if kind.finds is not Mend.finds]
    told = ((k.defects()[0].what, k().finds, UNKNOWN.format(k.name)) for k in finding)
    return {"integer": plain, "target": (*plain, float4, *told)}.get(level, ())


def check_level(program: Program, level: str) -> None:
    """Raises `UserError` with the pass that should have acted if `program` does not fit."""
    if not (bans := _bans(level)):
        return
    for op in program.walk():
        for what, found, remedy in bans:
            if found(op):
                raise UserError(what, op=string_attr(op, NAME) or op.operation.name, hint=remedy)


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
        dequantized: where integers become floats again, and why; see `jq.passes.lower_markers`.
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
    """Targets start from markers, where kernels see whole chains; the emitted level is plain."""
    levels.marked = levels["integer"]
    levels.dequantized = dequantized(levels.marked, cx)
    levels["integer"] = levels.marked.clone()
    run_all([LowerMarkers()], levels["integer"], cx)
