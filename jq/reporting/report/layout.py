"""Layout of a graph's nodes on a page: in rows from above, edges going down.

The way of Sugiyama: rows by longest path, an order within each row that has few crossings, then
places that keep to the order and leave edges as straight as they can be. An edge over several rows
goes through a point in each; edges from one node share these points."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SWEEPS = 8
NODE = 8.0  # how much stronger a node holds its place than a point of a long edge

Edges = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Layout:
    """`x`: the middle of each node, in units of the widths; `rows`: the row of each; `paths`: the
    points `(x, row)` that each edge goes through, both ends included."""

    x: tuple[float, ...]
    rows: tuple[int, ...]
    paths: tuple[tuple[tuple[float, int], ...], ...]


def lay_out(widths: Sequence[float], edges: Edges, point: float) -> Layout:
    """Places nodes of these widths (gaps included); `edges` lead from earlier nodes to later ones.

    Args:
        point: the width that an edge needs where it goes through a row."""
    rows, size = _rows(len(widths), edges), list(widths)
    chains: dict[tuple[int, int], int] = {}  # of an edge's start and a row: the point there
    steps: dict[tuple[int, int], None] = {}
    routes = []
    for a, b in edges:
        route = [a]
        for row in range(rows[a] + 1, rows[b]):
            if (a, row) not in chains:
                chains[a, row] = len(size)
                size.append(point)
                rows.append(row)
            route.append(chains[a, row])
        routes.append([*route, b])
        steps |= dict.fromkeys(zip(routes[-1], routes[-1][1:], strict=False))
    above, below = defaultdict(list), defaultdict(list)
    for a, b in steps:
        above[b].append(a)
        below[a].append(b)
    order = _ordered(rows, above, below)
    held = [NODE] * len(widths) + [1.0] * (len(size) - len(widths))
    x = _places(order, size, held, above, below)
    paths = tuple(tuple((x[i], rows[i]) for i in route) for route in routes)
    return Layout(tuple(x[: len(widths)]), tuple(rows[: len(widths)]), paths)


def _rows(count: int, edges: Edges) -> list[int]:
    """The longest path to each node; what nothing leads to stands just above its first reader."""
    rows = [0] * count
    readers = defaultdict(list)
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        rows[b] = max(rows[b], rows[a] + 1)
        readers[a].append(b)
    led = {b for _, b in edges}
    return [
        min(rows[b] for b in readers[i]) - 1 if i not in led and i in readers else rows[i]
        for i in range(count)
    ]


def _ordered(
    rows: Sequence[int], above: Mapping[int, list[int]], below: Mapping[int, list[int]]
) -> list[list[int]]:
    """The nodes of each row from left to right: by the mean place of what they are tied to, in the
    row above and in the row below in turns."""
    order: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for node, number in enumerate(rows):
        order[number].append(node)
    place = {node: i / len(row) for row in order for i, node in enumerate(row)}
    for sweep in range(SWEEPS):
        ties = below if sweep % 2 else above
        for row in reversed(order) if sweep % 2 else order:
            row.sort(key=lambda node: _mean((place[t] for t in ties[node]), place[node]))
            place |= {node: (i + 0.5) / len(row) for i, node in enumerate(row)}
    return order


def _places(
    order: Sequence[Sequence[int]],
    size: Sequence[float],
    held: Sequence[float],
    above: Mapping[int, list[int]],
    below: Mapping[int, list[int]],
) -> list[float]:
    x = [0.0] * len(size)
    for row in order:
        for node, middle in zip(row, _apart([0.0] * len(row), row, size, held), strict=True):
            x[node] = middle
    before = x
    for sweep in range(SWEEPS):
        ties, before = below if sweep % 2 else above, list(x)
        for row in reversed(order) if sweep % 2 else order:
            # Nodes stand in a straight line, and what passes them by goes around.
            near = [[t for t in ties[node] if held[t] == NODE] or ties[node] for node in row]
            wanted = [_mean((x[t] for t in n), x[node]) for n, node in zip(near, row, strict=True)]
            for node, middle in zip(row, _apart(wanted, row, size, held), strict=True):
                x[node] = middle
    # Going down drifts to one side and going up to the other; their mean keeps the distances.
    both = [(one + other) / 2 for one, other in zip(before, x, strict=True)]
    least = min((both[i] - size[i] / 2 for i in range(len(both))), default=0.0)
    return [value - least for value in both]


def _apart(
    wanted: Sequence[float], row: Sequence[int], size: Sequence[float], held: Sequence[float]
) -> list[float]:
    """The places next to the wanted ones (least weighted squares) that keep order and widths:
    isotonic regression of what is wanted, with all widths to the left taken off."""
    from scipy.optimize import isotonic_regression  # takes long to import

    steps = [(size[a] + size[b]) / 2 for a, b in itertools.pairwise(row)]
    offsets = np.cumsum([0.0, *steps])
    found = isotonic_regression(np.array(wanted) - offsets, weights=[held[node] for node in row])
    return list((found.x + offsets).tolist())


def _mean(values: Iterable[float], otherwise: float) -> float:
    found = list(values)
    return sum(found) / len(found) if found else otherwise
