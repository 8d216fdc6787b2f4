"""The cheapest way to divide things in two, where some are on one side and pairs cost something."""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_FIXED, _PREFERRED = 0, 1  # the two ends
_LIMIT = 2**30  # of all capacities together: the flow is computed in int32


@dataclass
class Cut:
    """Nodes are what they are called; None is what cannot be preferred."""

    _nodes: dict[Hashable, int] = field(default_factory=dict)
    _edges: list[tuple[int, int, int | None]] = field(default_factory=list)
    _count: int = 2

    def prefer(self, node: Hashable, cost: int) -> None:
        """It costs something to have `node` on the fixed side."""
        self._edges.append((_PREFERRED, self._number(node), cost))

    def connect(self, maker: Hashable, readers: Iterable[Hashable], cost: int) -> None:
        """It costs something, once, where a reader is on another side than the maker."""
        first = self._number(maker)
        others = {self._number(reader) for reader in readers} - {first}
        if not others:
            return
        if len(others) == 1:
            (other,) = others
            self._edges += [(first, other, cost), (other, first, cost)]
            return
        out, back = self._count, self._count + 1
        self._count += 2
        self._edges += [(first, out, cost), (back, first, cost)]
        for other in others:
            self._edges += [(out, other, None), (other, back, None)]

    def _number(self, node: Hashable) -> int:
        if node is None:
            return _FIXED
        if node not in self._nodes:
            self._nodes[node] = self._count
            self._count += 1
        return self._nodes[node]

    def preferred(self) -> set[Any]:
        """The nodes on the preferred side, as few as there can be at the least cost."""
        from scipy.sparse import csr_matrix  # they take long to import
        from scipy.sparse.csgraph import maximum_flow

        if not any(first == _PREFERRED for first, _, _ in self._edges):
            return set()
        total = sum(c for _, _, c in self._edges if c is not None)
        unit = -(-total // _LIMIT)
        rows, columns, costs = zip(*self._edges, strict=True)
        scaled = [2**31 - 1 if c is None else -(-c // unit) for c in costs]
        dense: dict[tuple[int, int], int] = {}
        for row, column, capacity in zip(rows, columns, scaled, strict=True):
            known = dense.get((row, column), 0)
            dense[row, column] = min(2**31 - 1, known + capacity)
        (rows, columns), values = zip(*dense, strict=True), list(dense.values())
        graph = csr_matrix(
            (np.array(values, np.int32), (np.array(rows), np.array(columns))),
            shape=(self._count, self._count),
        )
        flow = maximum_flow(graph, _PREFERRED, _FIXED).flow
        left = (graph.astype(np.int64) - flow.astype(np.int64)).tocsr()
        reached, waiting = {_PREFERRED}, deque([_PREFERRED])
        while waiting:
            node = waiting.popleft()
            span = slice(left.indptr[node], left.indptr[node + 1])
            for other, free in zip(left.indices[span], left.data[span], strict=True):
                if free > 0 and int(other) not in reached:
                    reached.add(int(other))
                    waiting.append(int(other))
        return {name for name, number in self._nodes.items() if number in reached}
