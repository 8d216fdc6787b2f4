"""A message that tells which parts a plan leaves float, where that is most of a model."""

from jq.base.tables import size
from jq.ir import Program
from jq.ir.types import number_kind
from jq.planning.decisions import QuantPlan
from jq.target.settings import FLOAT, Settings


def mostly_float(program: Program, plan: QuantPlan, settings: Settings) -> str | None:
    """A warning where weights were to be quantized, and more than half of their bytes are not."""
    if settings.weights.format == FLOAT or not settings.op_types:
        return None
    sizes = {name: array.nbytes for name, array in program.weights.items()}
    floats = {n for n, a in program.weights.items() if number_kind(a.dtype) in "fc"}
    stored = tuple(f"{name}:" for name in program.encodings)
    kept = {n for n in floats - plan.weights.keys() if not n.startswith(stored)}
    total, left = sum(sizes.values()), sum(sizes[n] for n in kept)
    if 2 * left <= total:
        return None
    largest = max(kept, key=lambda name: sizes[name])
    return (
        f"{size(left)} of {size(total)} of weights stay float, most of them in {largest}:"
        " `explain` says why"
    )
