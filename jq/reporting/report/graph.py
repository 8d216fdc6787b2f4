"""A program as a graph that a person can take in: its layers, and where their paths meet.

Whatever computes on the result of one layer alone (a bias, a norm, GELU, softmax) belongs to that
layer's edge. Nodes are left of inputs, layers, outputs, and ops that bring several of these
together (`join`: a residual sum, a mask):

    y = norm(x + dense(gelu(dense(x))))   ->   x - dense - dense - (add) - y,  x - (add)

Bodies of loops and branches are walked once; what a loop carries back is no edge."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jq.driver.comparison.result import LayerError
from jq.ir import NAME, Op, Program, ir, kind_of, string_attr
from jq.ir.ops.lookup import contraction_names
from jq.ir.values import BRANCHES, LOOP
from jq.reporting.measuring.verdict import number
from jq.reporting.report.layout import Layout, lay_out

Kind = Literal["input", "layer", "join", "output"]
_ENDS = ("func.return", "stablehlo.return")


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
        elif kind == LOOP:
            results = self._loop(op, sources)
        elif kind in BRANCHES:
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
        """The node computed from these: a new one only where several paths first meet."""
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
    """The graph without joins that lead nowhere: they compute a shape, an index, a check."""
    kept = set(range(len(nodes)))
    for index in reversed(range(len(nodes))):
        leads = any(a == index and b in kept for a, b in edges)
        if nodes[index].kind == "join" and not leads:
            kept.discard(index)
    order = {old: new for new, old in enumerate(sorted(kept))}
    left = ((order[a], order[b]) for a, b in edges if a in kept and b in kept)
    return Graph(tuple(nodes[i] for i in order), tuple(left))


# The graph of a model as SVG, each layer in the colour of its error.
BOX, TALL, GAP = 184, 40, 14  # of a node: width, height, and what stays free beside it
RADIUS, POINT = 10, 22  # of a join; what an edge needs that passes
LETTERS = 24  # of a name that fit in a box
STEPS = (50, 40, 30, 20, 10)  # dB: from here on a layer has the next better colour
WORDS = ("50 dB and more", "40 to 50", "30 to 40", "20 to 30", "10 to 20", "below 10 dB")
SIGNS = {"add": "+", "multiply": "×", "subtract": "−", "divide": "÷", "concatenate": "‖"}


def drawing(
    graph: Graph, errors: Mapping[str, LayerError], kept_float: frozenset[str]
) -> dict[str, Any]:
    """The picture for `pieces.html`; `kept_float` are the layers that are not quantized."""
    widths = [BOX + GAP if node.kind != "join" else 2 * RADIUS + GAP for node in graph.nodes]
    placed = lay_out(widths, graph.edges, POINT)
    y = _heights(graph, placed)
    wide = max((x + w / 2 for x, w in zip(placed.x, widths, strict=True)), default=0.0)
    wide = max([wide, *(x + POINT for path in placed.paths for x, _ in path)]) + GAP / 2
    # Every stretch from a row to the next once, whatever edges share it.
    stretches = {(*start, *end) for path in placed.paths for start, end in itertools.pairwise(path)}
    return {
        "wide": f"{wide:.0f}",
        "high": f"{max(y, default=0.0) + TALL:.0f}",
        "ways": [_way(x0, y[r0], x1, y[r1]) for x0, r0, x1, r1 in sorted(stretches)],
        "nodes": [
            {"x": x, "y": y[row], **_shown(node, errors.get(node.name), node.name in kept_float)}
            for node, x, row in zip(graph.nodes, placed.x, placed.rows, strict=True)
        ],
    }


def step(db: float) -> int:
    """The number of the colour of an error, from the best on."""
    return sum(not db >= limit for limit in STEPS)


def _heights(graph: Graph, placed: Layout) -> list[float]:
    """The middle of each row; a row of joins alone is low."""
    boxes = {row for node, row in zip(graph.nodes, placed.rows, strict=True) if node.kind != "join"}
    y, heights = TALL / 2 + 6.0, []
    for row in range(max(placed.rows, default=-1) + 1):
        half = TALL / 2 if row in boxes else RADIUS
        y += half if row else 0.0
        heights.append(y)
        y += half + 22
    return heights


def _way(x0: float, y0: float, x1: float, y1: float) -> str:
    middle = (y0 + y1) / 2
    bend = f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return f"M{x0:.1f} {y0:.1f}" + (f"V{y1:.1f}" if abs(x0 - x1) < 0.5 else bend)


def _shown(node: Node, error: LayerError | None, is_float: bool) -> dict[str, Any]:
    """The classes of a node, and lines below its name: their class and text."""
    kinds, lines = list[str]([node.kind]), list[tuple[str, str]]([("db", node.kind)])
    if node.kind == "layer":
        kinds, lines = [*kinds, *(["float"] * is_float)], [("db", "not measured")]
        if error:
            figures = (("all", error.sqnr_db), ("own", error.isolated_sqnr_db))
            kinds += [f"a{step(error.sqnr_db)}", f"o{step(error.isolated_sqnr_db)}"]
            lines = [(f"db {key}", f"{number(round(db, 1))} dB") for key, db in figures]
    own = {"label": label(node.name), "sign": SIGNS.get(node.op, "•")}
    return {**vars(node), **own, "kinds": " ".join(kinds), "lines": lines}


def label(name: str) -> str:
    """The end of a name, which tells layers apart, as far as it fits in a box."""
    parts = name.split("/")
    if len(parts) > 1 and parts[-1] in {"kernel", "weight", "embedding", *contraction_names()}:
        parts.pop()
    short = "/".join(parts)
    return short if len(short) <= LETTERS else f"…{short[1 - LETTERS :]}"
