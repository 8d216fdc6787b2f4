"""JAX's own cases of its primitives (`jax._src.internal_test_util.test_harnesses`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax._src.internal_test_util.test_harnesses import Harness
from jax._src.internal_test_util.test_harnesses import all_harnesses as ALL

from suites import program
from suites.noise import STEPS
from suites.outcome import Outcome
from suites.program import Case

# Results that many numbers are added up or multiplied for.
SUMS = (
    "conv_general_dilated",
    "cum",
    "custom_linear_solve",
    "dot_general",
    "fft",
    "random_gamma",
    "reduce",
    "scatter",
    "select_and",
    "triangular_solve",
    "tridiagonal_solve",
)
# Computed of exponentials, logarithms and poles: the last places of an argument count.
SMOOTH = (
    *("bessel_i0e", "bessel_i1e", "cos", "cosh", "digamma", "erf_inv", "igamma"),
    *("igammac", "integer_pow", "lgamma", "log", "pow", "random_gamma"),
    *("regularized_incomplete_beta", "sin", "sinh", "tan"),
)
LINEAR = ("conv_general_dilated", "dot_general", "gather")  # in each argument


def chosen(sample: int | None = None, groups: Sequence[str] = ()) -> list[int]:
    """Places in `ALL` of those that JAX has on a CPU, or of `sample` a group, evenly spread."""
    found = [
        i for i, h in enumerate(ALL) if h.filter("cpu") and (not groups or h.group_name in groups)
    ]
    if sample is None:
        return found
    sizes, seen, kept = Counter(ALL[i].group_name for i in found), Counter[str](), []
    for i in found:
        group = ALL[i].group_name
        at, n = seen[group], sizes[group]
        seen[group] += 1
        if n <= sample or (at * sample) // n != ((at + 1) * sample) // n:
            kept.append(i)
    return kept


def judge(batch: Sequence[int], pipeline: str) -> list[Outcome | None]:
    """Outcomes of these harnesses."""
    cases = [case(ALL[i], weights=pipeline != "float") for i in batch]
    return program.judge(cases, pipeline)


def case(harness: Harness, *, weights: bool = False) -> Case:
    """A harness with its own arguments as inputs, or with all but one as weights."""
    args = tuple(harness.dyn_args_maker(np.random.RandomState(0)))
    if harness.group_name == "approx_top_k":
        return Case(harness.group_name, harness.name, partial(_selected, harness), args)
    sums = harness.group_name.startswith(SUMS)
    smooth = harness.group_name in SMOOTH
    if harness.group_name == "sort" and not harness.params["is_stable"]:
        return Case(harness.group_name, harness.name, partial(_ordered, harness), args)
    if not weights or len(args) < 2:

        def plain(_: Any, *inputs: Any) -> Any:
            return harness.dyn_fun(*inputs)

        return Case(harness.group_name, harness.name, plain, args, sums=sums, smooth=smooth)
    held = 0 if harness.group_name == "gather" else 1  # what is gathered from; else the second

    def call(held_args: Any, *inputs: Any) -> Any:
        both = (*held_args, *inputs) if held == 0 else (*inputs, *held_args)
        return harness.dyn_fun(*both)

    first, rest = (args[:1], args[1:]) if held == 0 else (args[1:], args[:1])
    room = _room(harness, first[0], rest) if harness.group_name in LINEAR else _none
    return Case(harness.group_name, harness.name, call, rest, first, sums, smooth, room=room)


def _selected(harness: Harness, _: Any, x: Any) -> Any:
    """Values selected, and those at the places given: which of equal ones is left open."""
    values, places = harness.dyn_fun(x)
    return values, jax.numpy.take_along_axis(x, places, -1)


def _ordered(harness: Harness, _: Any, *args: Any) -> Any:
    """The keys, and the rows with equal keys in order: an unstable sort leaves theirs open."""
    axis, keys = harness.params["dimension"], harness.params["num_keys"]
    found = harness.dyn_fun(*args)
    found = found if isinstance(found, (tuple, list)) else [found]
    rows = jax.lax.sort(tuple(found), dimension=axis, num_keys=len(found))
    return *found[:keys], *rows


def _none(pipeline: str) -> list[Any]:
    return []


def _room(harness: Harness, weight: Any, inputs: Sequence[Any]) -> Callable[[str], list[Any]]:
    """Bound on the change by rounding both operands to a format: the sum over absolute values.

    |f(x + dx, w + dw) - f(x, w)| <= f(|x|, dw) + f(dx, |w|) + f(dx, dw), for f is linear in each.
    """

    def at(pipeline: str) -> list[Any]:
        kind = np.asarray(weight).dtype
        if kind.kind in "biu" or pipeline not in STEPS:
            return []
        # Shares of the largest number: half a step of weights; a whole one of activations, whose
        # zero point is rounded, too, and which reach to both sides of it.
        step, codes = 0.5 / STEPS[pipeline].weights, STEPS[pipeline].activations
        activation = 2 / codes if codes else 0.0
        w, dw = _sizes(weight, step)
        if harness.group_name == "gather":
            return [_wide(harness.dyn_fun(dw, *inputs))]
        x, dx = _sizes(inputs[0], activation)
        total = sum(_wide(harness.dyn_fun(a, b)) for a, b in ((x, dw), (dx, w), (dx, dw)))
        return [total]

    return at


def _sizes(array: Any, step: float) -> tuple[Any, Any]:
    """The absolute values, and the error of each, in the array's own type; in float32 of integers,
    whose errors are smaller than 1."""
    kind = np.asarray(array).dtype
    kind = np.dtype(np.float32) if kind.kind in "biu" else kind
    size = np.abs(np.asarray(array)).astype(kind)
    parts = np.asarray(array, np.complex128)
    largest = max(np.abs(parts.real).max(initial=0), np.abs(parts.imag).max(initial=0))
    return size, np.full(size.shape, largest * step * (1 + 2**-6), size.dtype)


def _wide(result: Any) -> np.ndarray:
    return np.abs(np.asarray(jax.tree.leaves(result)[0]).astype(np.complex128)).astype(np.float64)
