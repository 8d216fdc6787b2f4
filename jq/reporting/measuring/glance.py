"""A compiled model beside its float model on some samples: what `jaxq compile` ends with."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from jq.artifact.programs import choose
from jq.base import JqError, Progress, UserError, silent
from jq.driver.comparison.layers import Calls, compare_layers
from jq.driver.comparison.outputs import Outputs, worst
from jq.driver.comparison.result import Comparison, ErrorSum, Inside
from jq.driver.compiled import CompiledModel
from jq.ir import OPS, Program, at, dtype_of, number_kind, shape_of
from jq.ir.ops.dims import work_of
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.loaded import call_apart
from jq.ir.oracle.xla import PRODUCTS, XlaExecutable
from jq.planning.decisions import QuantPlan
from jq.reporting.measuring.evaluation import evaluation_of
from jq.reporting.measuring.measure import check_same_model
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
    ruling: who is right, where the float model and what was compiled from it in float disagree."""

    found: Comparison | None = None
    whole: bool = False
    failure: str = ""
    ruling: str = ""


def at_a_glance(compiled: CompiledModel, progress: Progress = silent) -> Glance:
    """Outputs and layers of a model compiled in this process, on samples for a few seconds.

    Without a comparison where there is nothing to run: no data, a program for another machine, a
    model that is too large to be run again on the way. A failure here is none of the artifact:
    XLA runs in a process of its own, where it may crash."""
    source, plan, levels = compiled.source, compiled.plan, compiled.levels
    if source is None or plan is None or choose(compiled.programs) is None:
        return Glance()
    if sum(np.asarray(w).nbytes for w in source.program.weights.values()) > LARGEST:
        return Glance()
    try:
        given = evaluation_of(source, None, None, ())
        # So many as are affordable, by no clock: the same are compared every time.
        count = max(FEW, min(MANY, WORK // max(1, work_of(source.program).total)))
        some = replace(given, calls=given.calls[:count], labels=None)
        progress("compare layers", None)
        program, pair = source.program, (levels["float"], levels["qdq"])
        reference, inside = call_apart(references, program, *pair, plan, some.calls)
        check_same_model(source, compiled)
        outputs = [compiled.call_flat(call) for call in some.tracked(progress, "compare")]
        found = some.compare(reference, outputs, inside)
        said = ""
        floats = plan.is_float and not program.encodings  # of codes no other program is a judge
        if floats and agreement(reference[0], outputs[0]) < AGREE:
            try:
                right = call_apart(third, program, some.calls[0])
                said = ruling(reference[0], outputs[0], *right)
            except JqError as error:
                said = f"a third evaluator cannot say which of both is right: {error.message}"
        return Glance(found, len(some.calls) == len(given.calls), ruling=said)
    except UserError:  # no data, or other inputs than the float model has
        return Glance()
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return Glance(failure=f"it was not compared with the float model: {reason}; {LEAVE_OUT}")


def references(
    program: Program, floating: Program, quantized: Program, plan: QuantPlan, calls: Calls
) -> tuple[list[Outputs], Inside]:
    """XLA's part: the outputs of the float model, and the error of its layers."""
    inside = compare_layers(floating, quantized, plan, calls)
    run = XlaExecutable(program)
    return [run(*arrays) for arrays in calls], inside


def verdict(glance: Glance, smaller: str) -> str:
    """Smaller by, close to float, the worst layer: sentences for people. A layer is named where
    `jaxq compare --layers` names the same one."""
    parts, found = [smaller, glance.failure], glance.found
    if found is not None:
        parts += [outputs_verdict(found), layer_verdict(found.layers) if glance.whole else ""]
        parts.append(glance.ruling)
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
        "ruling": glance.ruling,
        "worst_layer": None
        if bad is None
        else {"name": bad.name, "sqnr_db": bad.sqnr_db, "isolated_sqnr_db": bad.isolated_sqnr_db},
    }


# Who is right where the float program and XLA's reference of it disagree: a third evaluator says.
# StableHLO's interpreter computes every op by itself. It is slow, so that XLA without its
# optimizations takes its place for larger programs: no op is fused with another there, which is
# where XLA's defects were found.
Arrays = Sequence[np.ndarray]
AGREE = 60.0  # dB: sums in other orders are further away than this only where a model is chaotic
ROUNDINGS = 20.0  # dB: one way to round is no bound of all
ROUNDED = {f"stablehlo.{n}" for n in ("add", "subtract", "multiply", "divide")} | {*PRODUCTS}
SLOW = 2_000_000  # numbers that the interpreter computes in some seconds


def agreement(one: Arrays, other: Arrays) -> float:
    """The least dB of any output of `other` against `one`."""
    found = []
    for a, b in zip(one, other, strict=True):
        total = ErrorSum()
        total.add(np.asarray(a), np.asarray(b))
        found.append(total.sqnr_db)
    return min(found, default=np.inf)


def third(program: Program, inputs: Arrays) -> tuple[str, Arrays, Arrays]:
    """The name of a third evaluator, what it gives, and what it gives for the shaken program."""
    both = [program, shaken(program)]
    if numbers_of(program) <= SLOW:
        with suppress(Exception):  # what it has not, XLA has
            right, moved = (interpret(each, *inputs) for each in both)
            return "StableHLO's interpreter", right, moved
    right, moved = (XlaExecutable(each, optimized=False)(*inputs) for each in both)
    return "XLA without optimizations", right, moved


def shaken(program: Program) -> Program:
    """A copy in which all sums, differences and products are off by a last place, up and down in
    turn: what it gives differs from the program's by as much as rounding may make of it."""
    copy, sign = program.clone(), 1
    for op in list(copy.walk_all()):
        if op.operation.name in ROUNDED and number_kind(dtype_of(value := op.results[0])) == "f":
            sign, size = -sign, float(ml_dtypes.finfo(dtype_of(value)).eps)
            with at(op, after=True):
                moved = OPS.mul(value, OPS.full(value, 1 + sign * size))
            value.replace_all_uses_except(moved, moved.owner.operation)
    return copy


def numbers_of(program: Program) -> float:
    """The numbers that a call computes; without end where a loop is."""
    ops = [op.operation for op in program.walk()]
    if any(op.name == "stablehlo.while" for op in ops):
        return math.inf
    return work_of(program).total + sum(math.prod(shape_of(v)) for op in ops for v in op.results)


def ruling(reference: Arrays, found: Arrays, who: str, right: Arrays, moved: Arrays) -> str:
    """The verdict, in a sentence without its full stop; the artifact is `found`, and `moved` is
    what becomes of `right` in the shaken program."""
    theirs, ours = agreement(right, reference), agreement(right, found)
    if theirs >= AGREE > ours:
        if ours >= (most := agreement(right, moved)) - ROUNDINGS:
            return (
                "the model magnifies rounding: where its sums and products are off by one last"
                f" place, its outputs are off as much ({most:.0f} dB)"
            )
        return f"{who} agrees with XLA ({theirs:.0f} dB): the artifact is wrong, please report it"
    if ours >= AGREE > theirs:
        return (
            f"{who} agrees with the artifact ({ours:.0f} dB) and not with XLA ({theirs:.0f} dB):"
            " the artifact is right, and the reference that it was compared with is wrong"
        )
    if theirs < AGREE:
        return (
            f"{who} agrees neither with XLA ({theirs:.0f} dB) nor with the artifact"
            f" ({ours:.0f} dB): the model loses its digits, or all of them differ"
        )
    return ""
