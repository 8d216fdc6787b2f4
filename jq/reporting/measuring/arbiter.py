"""Who is right where the float program and XLA's reference of it disagree: a third evaluator says.

StableHLO's interpreter computes every op by itself. It is slow, so that XLA without its
optimizations takes its place for larger programs: no op is fused with another there, which is where
XLA's defects were found.
"""

import math
from collections.abc import Sequence

import numpy as np

from jq.driver.comparison.error_sum import ErrorSum
from jq.ir import Program, shape_of
from jq.ir.ops.dims import work_of
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable

Outputs = Sequence[np.ndarray]
AGREE = 60.0  # dB: sums in other orders are further away than this only where a model is chaotic
SLOW = 2_000_000  # numbers that the interpreter computes in some seconds


def agreement(one: Outputs, other: Outputs) -> float:
    """The least dB of any output of `other` against `one`."""
    found = []
    for a, b in zip(one, other, strict=True):
        total = ErrorSum()
        total.add(np.asarray(a), np.asarray(b))
        found.append(total.sqnr_db)
    return min(found, default=np.inf)


def third(program: Program, inputs: Outputs) -> tuple[str, Outputs]:
    """The name of the third evaluator, and what it gives."""
    if _numbers(program) <= SLOW:
        return "StableHLO's interpreter", interpret(program, *inputs)
    return "XLA without optimizations", XlaExecutable(program, optimized=False)(*inputs)


def _numbers(program: Program) -> float:
    """The numbers that a call computes; without end where a loop is."""
    ops = [op.operation for op in program.walk()]
    if any(op.name == "stablehlo.while" for op in ops):
        return math.inf
    return work_of(program).total + sum(math.prod(shape_of(v)) for op in ops for v in op.results)


def ruling(reference: Outputs, found: Outputs, who: str, right: Outputs) -> str:
    """Who is right, in a sentence without its full stop; the artifact is `found`."""
    theirs, ours = agreement(right, reference), agreement(right, found)
    if theirs >= AGREE > ours:
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
