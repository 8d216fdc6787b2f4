"""A program's results by XLA and by StableHLO's interpreter, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from jq.ir import Program
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable

Arrays = Sequence[np.ndarray]


def by_xla(program: Program, calls: Sequence[Arrays], compiled: bool = True) -> list[Arrays]:
    """Compiled; or with its inputs as constants, which XLA then evaluates itself for the most part,
    without the time that code takes to be made."""
    if compiled:
        run = XlaExecutable(program, strict=True)
        return [run(*arrays) for arrays in calls]
    return [XlaExecutable(_closed(program, arrays), strict=True)() for arrays in calls]


def _closed(program: Program, arrays: Arrays) -> Program:
    given = {f"input {i}": np.asarray(a) for i, a in enumerate(arrays)}
    copy = replace(program.clone(), inputs=(), weights={**given, **program.weights})
    return replace(copy, module=copy.materialize(), weights={})


def by_interpreter(program: Program, calls: Sequence[Arrays]) -> list[Arrays]:
    return [interpret(program, *arrays) for arrays in calls]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal numbers; zeros may differ in sign, which a maximum is free to choose."""
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(_plain(a), _plain(b))


def _plain(array: np.ndarray) -> np.ndarray:
    """NaNs of any bits are equal."""
    wide = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    return wide if array.dtype.kind in "iub" else np.where(np.isnan(wide), np.inf, wide + 0.0)


def told(found: np.ndarray, right: np.ndarray) -> str:
    """The number of elements that differ, and the first of them."""
    if found.shape != right.shape or found.dtype != right.dtype:
        return f"{found.dtype}{found.shape} instead of {right.dtype}{right.shape}"
    other = _plain(found) != _plain(right)
    at = tuple(map(int, np.argwhere(other)[0]))
    return f"{other.sum()} of {right.size}, {found[at]!r} instead of {right[at]!r} at {at}"


def difference(results: Mapping[str, Arrays]) -> str:
    """The first evaluator that differs from the first of all."""
    (first, right), *others = results.items()
    for name, found in others:
        for i, (a, b) in enumerate(zip(found, right, strict=True)):
            if not same(a, b):
                return f"{name} differs from {first} in result {i}: {told(a, b)}"
    return ""
