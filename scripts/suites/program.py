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
from jq.errors import UserError
from suites.close import difference
from suites.outcome import FAILED, REFUSED, RIGHT, SKIPPED, WRONG, Outcome

NO_ROOM = ()
jax.config.update("jax_platforms", "cpu")


@dataclass(frozen=True)
class Case:
    """A function of arrays.

    Attributes:
        fn: `fn(weights, *inputs)`.
        sums: whether it adds up many numbers, in any order.
        room: `room(pipeline)` is the error that the pipeline's formats may add to each element of
            each result.
    """

    group: str
    name: str
    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    weights: Any = ()
    sums: bool = False
    room: Callable[[str], Sequence[Any]] = field(default=lambda pipeline: NO_ROOM)


def judge(cases: Sequence[Case], pipeline: str) -> list[Outcome]:
    """Compiles all cases as one program, runs it, and compares it with `jax.jit`."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    references, outcomes = [], []
    for case in cases:
        try:
            references.append(_arrays(jax.jit(_plain(case.fn))(case.weights, *case.inputs)))
        except Exception as error:
            outcomes.append(_outcome(case, SKIPPED, error))
    if outcomes:
        return outcomes if len(cases) == 1 else []
    try:
        found = _run(cases, pipeline)
    except UserError as error:
        return [_outcome(case, REFUSED, error) for case in cases]
    except Exception as error:
        return [_outcome(case, FAILED, error) for case in cases]
    return [
        _compared(case, ours, theirs, pipeline)
        for case, ours, theirs in zip(cases, found, references, strict=True)
    ]


def _run(cases: Sequence[Case], pipeline: str) -> list[list[np.ndarray]]:
    def together(weights: Any, *inputs: Any) -> Any:
        return [_plain(case.fn)(w, *x) for case, w, x in zip(cases, weights, inputs, strict=True)]

    inputs = tuple(case.inputs for case in cases)
    model = jq.Model(together, [case.weights for case in cases], inputs)
    calibration = [inputs] if "static" in pipeline else None
    compiled = jq.compile(model, pipeline=pipeline, calibration=calibration)
    return [_arrays(result) for result in compiled(*inputs)]


def _compared(
    case: Case, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], pipeline: str
) -> Outcome:
    room = case.room(pipeline) or [0.0] * len(theirs)
    for a, b, allowed in zip(ours, theirs, room, strict=True):
        if found := difference(a, b, sums=case.sums, allowed=allowed):
            return Outcome(case.group, case.name, WRONG, found)
    return Outcome(case.group, case.name, RIGHT)


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
