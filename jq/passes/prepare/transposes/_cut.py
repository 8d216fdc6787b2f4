"""The cheapest way to divide things in two, where some are on one side and pairs cost something."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_FIXED, _PREFERRED = 0, 1  # the two ends
_LIMIT, _MOST = 2**30, 2**31 - 1  # all capacities together; one: the flow is computed in int32


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
        from scipy.sparse import coo_matrix  # they take long to import
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        if not any(first == _PREFERRED for first, _, _ in self._edges):
            return set()
        unit = -(-sum(c for *_, c in self._edges if c is not None) // _LIMIT)
        *places, costs = zip(*self._edges, strict=True)
        scaled = np.array([_MOST if c is None else -(-c // unit) for c in costs])
        graph = coo_matrix((scaled, tuple(places)), shape=(self._count, self._count)).tocsr()
        graph.data = np.minimum(graph.data, _MOST).astype(np.int32)
        flow = maximum_flow(graph, _PREFERRED, _FIXED).flow
        left = graph.astype(np.int64) - flow
        left.eliminate_zeros()
        reached = set(breadth_first_order(left, _PREFERRED, return_predecessors=False).tolist())
        return {name for name, number in self._nodes.items() if number in reached}
