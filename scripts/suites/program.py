"""Small functions through a pipeline, several as one program, and what becomes of each."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.base.errors import UserError
from suites.close import difference, is_exact, rounding_power
from suites.noise import STEPS, difference_power, power
from suites.outcome import DID_NOT_RUN, FAILED, REFUSED, RIGHT, SKIPPED, WRONG, Outcome

NO_ROOM = ()
PLACES = 4
# Of cases by a pipeline: the results of each.
Run = Callable[[Sequence["Case"], str], list[list[np.ndarray]]]
jax.config.update("jax_platforms", "cpu")


@dataclass(frozen=True)
class Case:
    """A function of arrays.

    Attributes:
        fn: `fn(weights, *inputs)`.
        sums: whether it adds up many numbers, in any order.
        smooth: whether the last places of its inputs may count: near a zero or a pole they decide
            about more of the result than its own last places.
        layer: whether a quantizing pipeline may add what `noise.power` says, instead of `room`.
        room: `room(pipeline)` is the error that the pipeline's formats may add to each element of
            each result.
    """

    group: str
    name: str
    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    weights: Any = ()
    sums: bool = False
    smooth: bool = False
    layer: bool = False
    room: Callable[[str], Sequence[Any]] = field(default=lambda pipeline: NO_ROOM)


def judge(cases: Sequence[Case], pipeline: str, run: Run | None = None) -> list[Outcome | None]:
    """Compiles all cases as one program, runs it, and compares it with `jax.jit`.

    Where the program of several cases fails, those that did not decide themselves are None.
    `run` does it in another way than `compiled`.
    """
    run = run or compiled
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    references: dict[int, list[np.ndarray]] = {}
    outcomes: list[Outcome | None] = [None] * len(cases)
    for i, case in enumerate(cases):
        try:
            jq.trace(model_of([case]))
        except UserError as error:
            outcomes[i] = _outcome(case, REFUSED, error)
            if not isinstance(error.__cause__, Exception):
                continue  # refused by us, not by JAX
        try:
            references[i] = _arrays(jax.jit(_plain(case.fn))(case.weights, *case.inputs))
        except Exception as error:
            outcomes[i] = _outcome(case, SKIPPED, error)
    left = [i for i, one in enumerate(outcomes) if one is None]
    if not left:
        return outcomes
    verdict, reason = FAILED, Exception()
    try:
        found = run([cases[i] for i in left], pipeline)
    except UserError as error:
        verdict, reason = FAILED if str(error).startswith(DID_NOT_RUN) else REFUSED, error
    except Exception as error:
        reason = error
    else:
        for i, ours in zip(left, found, strict=True):
            outcomes[i] = _compared(cases[i], ours, references[i], pipeline)
        return outcomes
    if len(left) == 1:
        outcomes[left[0]] = _outcome(cases[left[0]], verdict, reason)
    return outcomes


def model_of(cases: Sequence[Case]) -> jq.Model:
    """All cases as one model."""

    def together(weights: Any, *inputs: Any) -> Any:
        return [_plain(case.fn)(w, *x) for case, w, x in zip(cases, weights, inputs, strict=True)]

    return jq.Model(together, [case.weights for case in cases], tuple(c.inputs for c in cases))


def compiled(cases: Sequence[Case], pipeline: str) -> list[list[np.ndarray]]:
    """The cases' results, of one artifact that is called as users call it."""
    model = model_of(cases)
    artifact = jq.compile(model, pipeline=pipeline, calibration=calibration(model, pipeline))
    return [_arrays(result) for result in artifact(*model.example_inputs)]


def calibration(model: jq.Model, pipeline: str) -> list[Any] | None:
    """The example, where a pipeline needs data."""
    return [model.example_inputs] if "static" in pipeline else None


def _compared(
    case: Case, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], pipeline: str
) -> Outcome:
    if case.layer and pipeline in STEPS:
        pairs = list(zip(ours, theirs, strict=True))
        limits = [0.0] * len(pairs)
        if any(_noise(a, b, 0.0) for a, b in pairs):
            limits = power(_plain(case.fn), case.weights, case.inputs, STEPS[pipeline])
        noise = [_noise(a, b, limit) for (a, b), limit in zip(pairs, limits, strict=True)]
        verdict = WRONG if any(noise) else RIGHT
        return Outcome(case.group, case.name, verdict, "; ".join(filter(None, noise)))
    room = case.room(pipeline) or [0.0] * len(theirs)
    if case.smooth:
        room = [a + b for a, b in zip(room, _conditioning(case, theirs), strict=True)]
    for a, b, allowed in zip(ours, theirs, room, strict=True):
        if found := difference(a, b, sums=case.sums, allowed=allowed):
            return Outcome(case.group, case.name, WRONG, found)
    return Outcome(case.group, case.name, RIGHT)


def _noise(ours: np.ndarray, theirs: np.ndarray, limit: float) -> str:
    """Excess of a quantized result: more noise than `limit` and the float rounding of
    sums, together, or infinities of its own."""
    if is_exact(ours.dtype) or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return difference(ours, theirs)
    a, b = ours.astype(np.complex128), theirs.astype(np.complex128)
    finite = np.isfinite(a) & np.isfinite(b)
    if (~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))).any():
        return "infinities or NaN in other places"
    noise, own = np.sqrt(difference_power(ours, theirs)), np.sqrt(rounding_power(theirs))
    if noise <= np.sqrt(limit) + own:
        return ""
    return f"noise {noise:.3g}, where rounding gives {np.sqrt(limit):.3g} at most, floats {own:.1g}"


def numbers(*shape: int) -> np.ndarray:
    """float32 of a normal distribution, the same for the same shape."""
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def _conditioning(case: Case, theirs: Sequence[np.ndarray]) -> list[Any]:
    """The reference's change when each input changes by `PLACES` of its last places."""
    leaves, tree = jax.tree.flatten((case.weights, case.inputs))
    function = jax.jit(_plain(case.fn))
    room: list[Any] = [0.0] * len(theirs)
    for i, leaf in enumerate(leaves):
        array = np.asarray(leaf)
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            continue
        step = PLACES * float(jnp.finfo(array.dtype).eps)
        turned = (1 - 1j * step, 1 + 1j * step) if np.iscomplexobj(array) else ()
        for factor in (1 - step, 1 + step, *turned):
            moved = [*leaves[:i], (array * factor).astype(array.dtype), *leaves[i + 1 :]]
            weights, inputs = jax.tree.unflatten(tree, moved)
            for j, found in enumerate(_arrays(function(weights, *inputs))):
                change = np.abs(np.asarray(found, theirs[j].dtype) - theirs[j]).astype(np.float64)
                room[j] = np.maximum(room[j], np.where(np.isfinite(change), change, 0))
    return room


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Random keys among the results as the numbers that they are."""

    def plain(*args: Any) -> Any:
        def data(leaf: Any) -> Any:
            typed = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            return jax.random.key_data(leaf) if typed else leaf

        return jax.tree.map(data, fn(*args))

    return plain


def _arrays(result: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]


def _outcome(case: Case, verdict: str, error: Exception) -> Outcome:
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return Outcome(case.group, case.name, verdict, kind + str(error).partition("\n")[0][:400])
