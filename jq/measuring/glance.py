"""A compiled model beside its float model on a few samples: what `jaxq compile` ends with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jq.artifact.programs import choose
from jq.comparison.layers import compare_layers
from jq.comparison.outputs import worst
from jq.comparison.result import Comparison
from jq.compiled import CompiledModel
from jq.errors import UserError
from jq.measuring.evaluation import evaluation_of
from jq.measuring.measure import compare_compiled
from jq.measuring.verdict import furthest, layer_verdict, outputs_verdict
from jq.progress import Progress, silent

SAMPLES = 4  # calls
LARGEST = 512 << 20  # bytes of float weights, which are in memory several times while XLA runs


def at_a_glance(compiled: CompiledModel, progress: Progress = silent) -> Comparison | None:
    """Outputs and layers of a model that was compiled in this process, on a few of its samples.

    None where there is nothing to run: no data, a program for another machine, a model that is too
    large to be run again on the way.
    """
    source, plan, levels = compiled.source, compiled.plan, compiled.levels
    if source is None or plan is None or choose(compiled.programs) is None:
        return None
    if sum(np.asarray(w).nbytes for w in source.program.weights.values()) > LARGEST:
        return None
    try:
        given = evaluation_of(source, None, None, ())
        few = replace(given, calls=given.calls[:SAMPLES], labels=None)
        inside = compare_layers(levels["float"], levels["qdq"], plan, few.calls, progress)
        return compare_compiled(few, compiled, progress, inside)
    except UserError:  # no data, or other inputs than the float model has
        return None


def verdict(found: Comparison | None, smaller: str) -> str:
    """Smaller by, close to float, the worst layer: sentences for people."""
    parts = [smaller]
    if found is not None:
        parts += [outputs_verdict(found), layer_verdict(found.layers)]
    return "\n".join(f"{part[0].upper()}{part[1:]}." for part in parts if part)


def document(found: Comparison | None) -> dict[str, Any] | None:
    """The same for programs."""
    if found is None:
        return None
    errors = worst(found.outputs)
    bad = next(iter(furthest(found.layers)), None)
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
