"""JAX's cases as programs whose memory is watched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from suites import guard_pages, memory, primitives, program, valgrind
from suites.outcome import RIGHT, Outcome
from suites.program import Run

# What reads or writes at places that it computes, or around a window.
INDEXING = (
    *("argmax", "argmin", "concatenate", "conv_general_dilated", "cummax", "cumsum"),
    *("dynamic_slice", "dynamic_update_slice", "gather", "pad", "reduce_window_max", "rev"),
    *("scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul"),
    *("select_and_gather_add", "select_and_scatter_add", "slice", "sort", "top_k", "transpose"),
)
WAYS: dict[str, Run] = {
    "guard": partial(memory.watched, call=guard_pages.call_guarded, storage=True),
    "valgrind": partial(memory.watched, call=valgrind.call_under_valgrind, storage=False),
}


def judge(batch: Sequence[int], pipeline: str, by: Sequence[str]) -> list[Outcome | None]:
    """Outcomes of these harnesses in some of `WAYS`: the first that is not right counts."""
    cases = [primitives.case(primitives.ALL[i], weights=pipeline != "float") for i in batch]
    found = [program.judge(cases, pipeline, WAYS[way]) for way in by]
    return [
        next((one for one in each if one is None or one.verdict != RIGHT), each[0])
        for each in zip(*found, strict=True)
    ]
