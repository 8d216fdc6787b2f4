"""Drawn graphs as one program: one compile of XLA or IREE then serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.frontends.tracing.entry import flatten, make_program
from jq.frontends.tracing.modules import Imported
from jq.ir import Program, parse_module
from suites.differential import elementwise, movement, products, regions
from suites.differential.draw import DRAWERS, draw, shape_of
from suites.differential.graph import Graph, Value, numbers
from suites.differential.kinds import Kind

MOST = 30  # ops of a graph
assert elementwise and movement and products and regions  # they fill DRAWERS


@dataclass(frozen=True)
class Module:
    """Attributes:
    inputs: of the program, several sets of them.
    results: how many each graph has.
    """

    program: Program
    inputs: list[list[np.ndarray]]
    results: tuple[int, ...]

    def split(self, found: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """The results of each graph."""
        rest = list(found)
        return [[rest.pop(0) for _ in range(n)] for n in self.results]


def drawn(seed: int, kind: Kind) -> Graph:
    """A graph of up to 30 ops."""
    rng = np.random.default_rng(seed)
    g = Graph(rng, f"g{seed}", kind.rounds, kind.codes, kind.rows, kind.splits)
    for dtype in ("f32", g.choose(["f32", "f32", "f32", "i8", "i32", "bf16"])):
        g.keep(g.input(shape_of(g), dtype))
    draw(g, MOST, kind.without)
    return g


def text_of(graphs: Sequence[Graph]) -> str:
    """A module of all of them, side by side."""
    given = [v for g in graphs for v, _ in (*g.inputs,)]
    weights = [v for g in graphs for v, _ in g.weights]
    results = [v for g in graphs for v in g.result()]
    arguments = ", ".join(f"{v.name}: {v.type}" for v in (*given, *weights))
    types = ", ".join(v.type for v in results)
    lines = "\n".join(line for g in graphs for line in g.lines)
    names = ", ".join(v.name for v in results)
    back = f'"func.return"({names}) : ({types}) -> ()'
    return f"func.func @main({arguments}) -> ({types}) {{\n{lines}\n{back}\n}}\n"


def module_of(graphs: Sequence[Graph], sets: int = 2) -> Module:
    module = parse_module(text_of(graphs))
    weights = {v.name[1:]: array for g in graphs for v, array in g.weights}
    constants, _ = flatten(module, list(weights))
    given = [f"arg{i}" for g in graphs for i, _ in enumerate(g.inputs)]
    results = tuple(len(g.result()) for g in graphs)
    outputs = [f"result{i}" for i in range(sum(results))]
    found = Imported(module, given, outputs)
    program = make_program(found, {**weights, **constants}, traced=True)
    inputs = [[array for g in graphs for _, array in g.inputs]]
    for _ in range(sets - 1):
        inputs.append([numbers(g.rng, v.shape, v.kind) for g in graphs for v, _ in g.inputs])
    return Module(program, inputs, results)


__all__ = ["DRAWERS", "Module", "Value", "drawn", "module_of", "text_of"]
