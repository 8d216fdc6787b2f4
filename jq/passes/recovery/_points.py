"""Codes of a matrix where several side by side are one point of a set.

`_solve` chooses codes of their own; here groups stand in place of rows: each aims at its own
weights and at what the groups before it lost (van Baalen et al., "GPTVQ: The Blessing of
Dimensionality for LLM Quantization", 2024), and then, the others as they are, at the least of all
errors, as long as those become fewer."""

from collections.abc import Callable

import numpy as np

from jq.passes.recovery._descent import COLUMNS, LAZY, runs

# Codes nearest to numbers f32 [n, size], whose errors have weights of the same shape.
Near = Callable[[np.ndarray, np.ndarray | None], np.ndarray]


def best_points(
    weight: np.ndarray,
    h: np.ndarray,
    feedback: Callable[[np.ndarray], np.ndarray],
    step: np.ndarray,
    near: Near,
    size: int,
    passes: int,
) -> np.ndarray:
    """Codes f32[K, N], value = step * code, for `weight` f32[K, N] and H f32[K, K], damped.

    Args:
        feedback: of rows in an order: the unit upper L of H = L D L^T.
        step: f32[K, N].
        size: rows of a group; divides K.
        passes: through all groups after the first."""
    heavy = np.argsort(-np.diag(h).reshape(-1, size).sum(axis=1), kind="stable")
    rows = (heavy[:, None] * size + np.arange(size)).reshape(-1)
    spread, h = _by_groups(feedback(rows), size), h[np.ix_(rows, rows)].astype(np.float32)
    found = np.empty_like(weight)
    for part in runs(0, weight.shape[1], COLUMNS):
        solver = _Groups(weight[rows, part], h, step[rows, part], near, size)
        solver.first(spread)
        for _ in range(passes):
            solver.again()
        found[rows, part] = solver.codes
    return found


def _by_groups(spread: np.ndarray, size: int) -> np.ndarray:
    """The share of an error that later groups get, when all of its own group are chosen."""
    for own in runs(0, len(spread), size):
        spread[: own.stop, own] = np.linalg.solve(spread[own, own].T, spread[: own.stop, own].T).T
    return spread


class _Groups:
    """Some columns, group by group; their rows lie in the order in which groups are chosen."""

    def __init__(
        self, weight: np.ndarray, h: np.ndarray, step: np.ndarray, near: Near, size: int
    ) -> None:
        self.weight, self.h, self.step = weight, h, step
        self.near, self.size = near, size
        self.codes = np.empty_like(weight)

    def _nearest(self, aim: np.ndarray, own: slice) -> np.ndarray:
        wanted = np.ascontiguousarray((aim / self.step[own]).T)
        return self.near(wanted, np.broadcast_to(np.diag(self.h)[own], wanted.shape)).T

    def first(self, spread: np.ndarray) -> None:
        """All codes, each group after the errors of those before it."""
        aim, count = self.weight.copy(), len(self.weight)
        together = max(self.size, LAZY)
        for lazy in runs(0, count, together):
            errors = np.empty_like(aim[lazy])
            for own in runs(lazy.start, lazy.stop, self.size):
                self.codes[own] = self._nearest(aim[own], own)
                error = self.weight[own] - self.codes[own] * self.step[own]
                errors[own.start - lazy.start : own.stop - lazy.start] = error
                aim[own.stop : lazy.stop] += spread[own, own.stop : lazy.stop].T @ error
            aim[lazy.stop :] += spread[lazy, lazy.stop :].T @ errors

    def again(self) -> None:
        """Each group to its best, the others as they are, in the columns where that is better."""
        residual = self.h @ (self.codes * self.step - self.weight)
        for own in runs(0, len(self.weight), self.size):
            h, real = self.h[own, own], self.codes[own] * self.step[own]
            codes = self._nearest(real - np.linalg.solve(h, residual[own]), own)
            change = codes * self.step[own] - real
            gain = np.einsum("kn,kn->n", change, 2 * residual[own] + h @ change)
            change = np.where(better := gain < 0, change, 0)
            self.codes[own] = np.where(better, codes, self.codes[own])
            residual += self.h[:, own] @ change
