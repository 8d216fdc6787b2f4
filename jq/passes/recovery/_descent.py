"""Coordinate descent of a solution: each scale to its best value given the codes, then each row's
codes to their best given all others.

H D, for D = W' - W, is kept up to date: what some rows change is added at once to the rows of their
panel, which stay in the processor's caches, and to all others when the panel is done."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jq.passes.recovery._grids import Grid

Array = np.ndarray
COLUMNS = 1024  # that are solved for together
LAZY = 64  # rows whose errors are spread over their panel at once
PANEL = 256  # rows whose errors are spread over the rest at once
WHOLE = 2048  # a matrix of so few rows is one panel
SETTLED = 0.02  # a pass that gains less than this share is the last


@dataclass
class Solution:
    """Codes of W [K, N] with blocks along K: real = scale * (codes - zero)."""

    codes: Array  # f32[K, N]
    scale: Array  # f32[G, N]
    zero: Array  # f32[G, N]
    groups: list[slice]
    grid: Grid

    def columns(self, which: slice | Array) -> "Solution":
        """Some columns: views of a slice, copies where they are numbered."""
        codes, scale, zero = (a[:, which] for a in self.arrays)
        return Solution(codes, scale, zero, self.groups, self.grid)

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        return self.codes, self.scale, self.zero

    def real(self) -> Array:
        parts = [(self.codes[s] - self.zero[g]) * self.scale[g] for g, s in enumerate(self.groups)]
        return np.concatenate(parts)


def runs(start: int, stop: int, size: int) -> Iterator[slice]:
    """`start` to `stop` in runs of `size`."""
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def panel_rows(count: int) -> int:
    """Rows of a panel of so many rows in all."""
    return count if count <= WHOLE else PANEL


def descend(found: Solution, weight: Array, h: Array, passes: int) -> None:
    """Improves `found` for `weight` f32[K, N] and H f32[K, K]; never makes it worse."""
    residual = h @ (found.real() - weight)  # half the gradient
    # H times codes, less their zero, comes from H W' where a column has one scale.
    product = h @ weight if passes and len(found.groups) == 1 else None
    before = quadratic(found.real() - weight, residual)
    for left in reversed(range(passes)):
        for groups in _panels(found.groups):
            _descend_panel(found, h, residual, product, groups, last=not left)
        if not left:
            return
        after = quadratic(found.real() - weight, residual)
        if before - after < SETTLED * before:
            return
        before = after


def _panels(groups: list[slice]) -> Iterator[list[int]]:
    """Groups side by side that fill a panel at most, or one that has more rows."""
    together, most = list[int](), panel_rows(groups[-1].stop)
    for g, s in enumerate(groups):
        if together and s.stop - groups[together[0]].start > most:
            yield together
            together = []
        together.append(g)
    yield together


def _descend_panel(
    found: Solution, h: Array, residual: Array, product: Array | None, groups: list[int], last: bool
) -> None:
    rows = slice(found.groups[groups[0]].start, found.groups[groups[-1]].stop)
    panel = _Panel(h, residual, rows)
    most = panel_rows(len(h))
    large = rows.stop - rows.start > most
    for g in groups:
        moved = _move_scales(found, panel, product, g) if found.grid.scales else None
        if not large:
            _move_codes(found, panel, g, found.groups[g], moved)
    panel.close(last and not large)
    for part in runs(rows.start, rows.stop, most) if large else ():
        panel = _Panel(h, residual, part)
        _move_codes(found, panel, groups[0], part, None)
        panel.close(last)


class _Panel:
    """Changes of some rows of W'; what they do to H D in other rows is added by `close`."""

    def __init__(self, h: Array, residual: Array, rows: slice) -> None:
        self.h, self.residual, self.rows = h, residual, rows
        self._changes: Array | None = None

    def add(self, rows: slice, change: Array) -> None:
        """Takes in changes of rows of the panel."""
        first = self.rows.start
        self.residual[self.rows] += self.h[self.rows, rows] @ change
        if self.rows.stop - first < len(self.h):
            if self._changes is None:
                shape = self.rows.stop - first, change.shape[1]
                self._changes = np.zeros(shape, np.float32)
            self._changes[rows.start - first : rows.stop - first] += change

    def close(self, only_below: bool) -> None:
        """No row is changed further; with `only_below`, no row above is read again."""
        if self._changes is None:
            return
        above, below = slice(0, self.rows.start), slice(self.rows.stop, len(self.h))
        for others in [below] if only_below else [above, below]:
            self.residual[others] += self.h[others, self.rows] @ self._changes


def _move_scales(found: Solution, panel: _Panel, product: Array | None, g: int) -> Array | None:
    """The change of a small block's rows that is not added to the panel yet."""
    s, h, residual = found.groups[g], panel.h, panel.residual
    steps = found.codes[s] - found.zero[g]
    ones = h[s, s].sum(1, keepdims=True)
    if product is not None:
        of_steps = (residual + product) / found.scale[g]
        scale, level = _rescale(found, g, steps, residual, of_steps, ones)
        residual += of_steps * scale + ones * level
        return None
    scale, level = _rescale(found, g, steps, residual[s], h[s, s] @ steps, ones)
    change = steps * scale + level
    if s.stop - s.start <= LAZY:
        return change
    panel.add(s, change)
    return None


def _move_codes(found: Solution, panel: _Panel, g: int, rows: slice, moved: Array | None) -> None:
    """The codes of rows of one block, which `moved` already."""
    for lazy in runs(rows.start, rows.stop, LAZY):
        own = panel.h[lazy, lazy]
        if moved is None:
            panel.add(lazy, _recode(found, panel.residual[lazy], own, g, lazy))
        else:  # all of the block
            local = panel.residual[lazy] + own @ moved
            panel.add(lazy, moved + _recode(found, local, own, g, lazy))


def quadratic(a: Array, b: Array) -> float:
    """Sum of products."""
    return float(np.einsum("kn,kn->n", a, b).sum(dtype=np.float64))


def _rescale(
    found: Solution, g: int, steps: Array, residual: Array, *products: Array
) -> tuple[Array, Array]:
    """Moves the scales of a block, and free zeros, to the minimum, rounded to their types; by how
    much scales change, and all numbers besides. `products` are those of H with `steps`, the codes
    less their zero, and with ones."""
    of_steps, of_ones = products
    grid, old, zero = found.grid, found.scale[g], found.zero[g]
    slope = np.einsum("kn,kn->n", steps, residual)
    curve = np.maximum(np.einsum("kn,kn->n", steps, of_steps), np.float32(1e-30))
    lift, across, flat = residual.sum(0), (steps * of_ones).sum(0), max(of_ones.sum(), 1e-30)
    if not grid.zeros:
        lift, across = np.zeros_like(slope), np.zeros_like(slope)
    # The best scale is the one that its best zero goes with; where codes are alike, any would do.
    own = curve - across**2 / flat
    own = np.where(own > 1e-3 * curve, own, np.inf)
    assert grid.scales
    new = grid.scales(old - (slope - across * lift / flat) / own)
    change = np.where(np.isfinite(new) & (new > 0), new - old, 0)
    new, level = old + change, np.zeros_like(slope)
    if grid.zeros:
        level = (zero - grid.zeros(zero + (lift + across * change) / flat / new)) * new
    gain = change * (2 * slope + change * curve + 2 * level * across)
    better = gain + level * (2 * lift + level * flat) < 0
    change, level = np.where(better, change, 0), np.where(better, level, 0)
    found.scale[g] = old + change
    found.zero[g] = zero - level / found.scale[g]
    return change, level


def _recode(found: Solution, residual: Array, h: Array, g: int, rows: slice) -> Array:
    """Moves the codes of some rows of a block, one at a time, to their best; the change of W'."""
    scale, inverse = found.scale[g], 1 / np.diagonal(h)
    codes = found.codes[rows]  # a view
    changes = np.empty_like(codes)
    for j in range(len(codes)):
        slope = residual[j] + h[j, :j] @ changes[:j]  # after the rows before
        new = found.grid.near(codes[j] - slope * inverse[j] / scale)
        np.multiply(new - codes[j], scale, out=changes[j])
        codes[j] = new
    return changes
