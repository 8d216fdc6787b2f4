"""A program as a graph that a person can take in: its layers, and where their paths meet.

Whatever computes on the result of one layer alone (a bias, a norm, GELU, softmax) belongs to that
layer's edge. Nodes are left of inputs, layers, outputs, and ops that bring several of these
together (`join`: a residual sum, a mask):

    y = norm(x + dense(gelu(dense(x))))   ->   x - dense - dense - (add) - y,  x - (add)

Bodies of loops and branches are walked once; what a loop carries back is no edge.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jq.ir import Op, Program, ir
from jq.ir.build import NAME, string_attr
from jq.ir.values import kind_of

Kind = Literal["input", "layer", "join", "output"]
_ENDS = ("func.return", "stablehlo.return")
_WHILE, _BRANCHES = "stablehlo.while", ("stablehlo.case", "stablehlo.if")


@dataclass(frozen=True)
class Node:
    """`name`: of a layer its op's, else the input's, the output's, or the joining op's kind."""

    kind: Kind
    name: str
    op: str = ""


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which every edge leads from an earlier one to a later one."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]

    def inputs_of(self, index: int) -> list[int]:
        return [a for a, b in self.edges if b == index]


def graph_of(program: Program, layers: Collection[str]) -> Graph:
    """The graph of a program whose ops with these names are layers."""
    graph = _Walk(frozenset(layers))
    arguments = program.body.arguments
    for spec, argument in zip(program.inputs, arguments, strict=False):
        graph.at[argument] = graph.add("input", spec.name)
    results = graph.walk(program.body)
    for spec, source in zip(program.outputs, results, strict=True):
        graph.add("output", spec.name, sources=[source])
    return _without_ends(graph.nodes, graph.edges)


@dataclass
class _Walk:
    """`at`: the node that each value comes from; values of constants and weights have none."""

    layers: frozenset[str]
    nodes: list[Node] = field(default_factory=list)
    edges: dict[tuple[int, int], None] = field(default_factory=dict)
    at: dict[ir.Value, int] = field(default_factory=dict)

    def add(self, kind: Kind, name: str, op: str = "", sources: Sequence[int | None] = ()) -> int:
        self.nodes.append(Node(kind, name, op))
        index = len(self.nodes) - 1
        self.edges |= dict.fromkeys((s, index) for s in sources if s is not None)
        return index

    def walk(self, block: ir.Block) -> list[int | None]:
        """The nodes of what a block returns."""
        for op in block.operations:
            if op.operation.name in _ENDS:
                return [self.at.get(value) for value in op.operands]
            self._put(op)
        return []

    def _put(self, op: Op) -> None:
        kind, sources = op.operation.name, [self.at.get(value) for value in op.operands]
        name, results = string_attr(op, NAME), list[int | None]()
        if name in self.layers:
            results = [self.add("layer", str(name), short(kind), sources)] * len(op.results)
        elif kind == _WHILE:
            results = self._loop(op, sources)
        elif kind in _BRANCHES:
            ends = [self.walk(region.blocks[0]) for region in op.regions]
            results = [
                self._joined("branch", [*sources, *each]) for each in zip(*ends, strict=True)
            ]
        else:
            results = [self._joined(short(kind_of(op)), sources)] * len(op.results)
        for value, node in zip(op.results, results, strict=True):
            if node is not None:
                self.at[value] = node

    def _loop(self, op: Op, sources: list[int | None]) -> list[Any]:
        for region in op.regions:
            for argument, source in zip(region.blocks[0].arguments, sources, strict=True):
                if source is not None:
                    self.at[argument] = source
        ends = self.walk(op.regions[1].blocks[0])
        return [end if end is not None else s for end, s in zip(ends, sources, strict=True)]

    def _joined(self, kind: str, sources: Sequence[int | None]) -> int | None:
        """The node of what is computed from these: a new one only where several paths meet that
        have not met before."""
        met = sorted({s for s in sources if s is not None})
        if len(met) < 2:
            return met[0] if met else None
        last = met[-1]
        if self.nodes[last].kind == "join" and all((s, last) in self.edges for s in met[:-1]):
            return last
        return self.add("join", kind, kind, met)


def short(kind: str) -> str:
    """`stablehlo.dot_general` -> `dot_general`."""
    return kind.partition(".")[2] or kind


def _without_ends(nodes: Sequence[Node], edges: Collection[tuple[int, int]]) -> Graph:
    """Without joins that lead nowhere: what they compute is a shape, an index, a check."""
    kept = set(range(len(nodes)))
    for index in reversed(range(len(nodes))):
        leads = any(a == index and b in kept for a, b in edges)
        if nodes[index].kind == "join" and not leads:
            kept.discard(index)
    order = {old: new for new, old in enumerate(sorted(kept))}
    left = ((order[a], order[b]) for a, b in edges if a in kept and b in kept)
    return Graph(tuple(nodes[i] for i in order), tuple(left))
