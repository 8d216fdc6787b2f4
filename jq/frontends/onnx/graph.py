"""An ONNX model as plain data: graphs of nodes, functions, and the file that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

STANDARD = ("", "ai.onnx")


@dataclass(frozen=True)
class Reference:
    """An attribute of a node in a function that is an attribute of the call."""

    name: str


@dataclass(frozen=True)
class Node:
    """One call of an operator.

    Attributes:
        attributes: as they are written; a sub-graph is a `Graph`, a tensor a NumPy array.
        where: how messages name it.
    """

    op: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    name: str

    @property
    def where(self) -> str:
        return self.name or next(filter(None, self.outputs), self.op)

    @cached_property
    def graphs(self) -> list[Graph]:
        return [v for v in self.attributes.values() if isinstance(v, Graph)]


@dataclass(frozen=True)
class Graph:
    """Nodes with what goes in and out; `initializers` are values by name."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: Mapping[str, np.ndarray] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)  # TypeProto of inputs and outputs

    def walk(self) -> Iterator[Node]:
        """All nodes, also of sub-graphs."""
        for node in self.nodes:
            yield node
            for graph in node.graphs:
                yield from graph.walk()


@dataclass(frozen=True)
class Function:
    """A model's own operator, or the definition that the standard gives of one of its own."""

    graph: Graph
    opsets: Mapping[str, int]
    defaults: Mapping[str, Any]


@dataclass(frozen=True)
class File:
    """A model that was read.

    Attributes:
        opsets: version of each domain; the standard one is "".
        functions: by domain, name and overload.
    """

    path: Path
    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], Function]
    producer: str = ""

    @property
    def opset(self) -> int:
        return self.opsets.get("", 1)
