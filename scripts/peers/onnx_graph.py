"""An ONNX graph that can be rewritten node by node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

_NAMES = (f"tidy_{i}" for i in count())
Rule = Callable[["Graph", onnx.NodeProto], list[onnx.NodeProto] | None]


class Graph:
    """A model's nodes with what a rewriting asks: who made a value, who reads it, its shape."""

    def __init__(self, model: onnx.ModelProto):
        self.model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        g = self.model.graph
        self.initializers = {t.name: t for t in g.initializer}
        self.shapes = {name: tuple(t.dims) for name, t in self.initializers.items()}
        for value in (*g.input, *g.output, *g.value_info):
            dims = value.type.tensor_type.shape.dim
            if all(d.HasField("dim_value") for d in dims):
                self.shapes[value.name] = tuple(d.dim_value for d in dims)
        self._index()

    def _index(self) -> None:
        g = self.model.graph
        self.maker = {out: node for node in g.node for out in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in g.node:
            for name in node.input:
                self.readers[name].append(node)
        self.results = {o.name for o in g.output}

    def apply(self, rule: Rule) -> bool:
        """Puts what `rule` gives in place of each node; nodes that nobody reads go."""
        changed, nodes = False, []
        for node in self.model.graph.node:
            new = rule(self, node)
            changed |= new is not None
            nodes += [node] if new is None else new
        if changed:
            del self.model.graph.node[:]
            self.model.graph.node.extend(self._living(nodes))
            self._index()
        return changed

    def _living(self, nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        kept, read = [], set(self.results)
        for node in reversed(nodes):
            if read & set(node.output):
                kept.append(node)
                read |= set(node.input)
        return kept[::-1]

    def constant(self, name: str) -> np.ndarray | None:
        tensor = self.initializers.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def scalar(self, name: str) -> float | None:
        value = self.constant(name)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def add_constant(self, value: np.ndarray) -> str:
        tensor = numpy_helper.from_array(value, next(_NAMES))
        self.model.graph.initializer.append(tensor)
        self.initializers[tensor.name] = tensor
        return tensor.name

    def new(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> Any:
        name = next(_NAMES)
        return helper.make_node(op, inputs, [output or name], name=name, **attributes)

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        readers = self.readers[name]
        return readers[0] if len(readers) == 1 and name not in self.results else None


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    for a in node.attribute:
        if a.name == name:
            return helper.get_attribute_value(a)
    return default
