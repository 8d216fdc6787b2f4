"""An ONNX model as plain data: nodes in an order in which they can be computed, and functions."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, helper

from jq.errors import UserError
from jq.onnx.tensors import Files
from jq.onnx.wire import without_tensors

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


def read_file(path: Path) -> File:
    """Reads a model; tensors are mapped or read once, and nothing is computed.

    Raises:
        UserError: it cannot be read, is damaged, or refers to files outside of its folder.
    """
    return from_proto(_parse(path), path)


def _require_text(message: Message, path: Path) -> None:
    """Refuses names that are no UTF-8: protobuf gives them as bytes, without a word."""
    for kind, value in message.ListFields():
        values = (value,) if isinstance(value, str | bytes | Message) else value
        if kind.type == kind.TYPE_STRING and any(isinstance(v, bytes) for v in values):
            raise UserError(f"{kind.full_name} is no UTF-8 text", location=str(path))
        if kind.message_type is not None:
            for each in values:
                _require_text(each, path)


def from_proto(model: onnx.ModelProto, path: Path) -> File:
    _require_text(model, path)
    opsets = _opsets(model.opset_import)
    if not opsets:
        raise UserError("the model names no version of its operators", location=str(path))
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", 1) > newest:
        raise UserError(
            f"the model uses operators of version {opsets['']}, the newest known is {newest}",
            location=str(path),
            hint="install a newer onnx package",
        )
    files = Files(path)
    functions = {
        (_domain(f.domain), f.name, f.overload): function_of(f, files) for f in model.functions
    }
    _refuse_twice([f"function {f.domain}.{f.name} {f.overload}" for f in model.functions], path)
    _refuse_recursion(functions, path)
    graph = _graph(model.graph, files)
    _require_names(graph, path)
    return File(path, graph, opsets, functions, model.producer_name)


def _parse(path: Path) -> onnx.ModelProto:
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise UserError("the file is empty", location=str(path))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                slim = without_tensors(data, str(path))
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", location=str(path)) from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(slim)
    except DecodeError as error:
        raise UserError(f"no ONNX model, or a damaged one: {error}", location=str(path)) from None
    if not model.HasField("graph"):
        raise UserError("no ONNX model: there is no graph in it", location=str(path))
    return model


def function_of(proto: onnx.FunctionProto, files: Files) -> Function:
    nodes = _sorted([_node(n, files) for n in proto.node], files.path)
    graph = Graph(nodes, tuple(proto.input), tuple(proto.output))
    given = {a.name: _attribute(a, files) for a in proto.attribute_proto}
    # What the caller does not give is absent, not a reference that nothing answers.
    defaults = dict.fromkeys(proto.attribute) | given
    return Function(graph, _opsets(proto.opset_import), defaults)


def _opsets(imports: Any) -> dict[str, int]:
    return {_domain(entry.domain): entry.version for entry in imports}


def _domain(name: str) -> str:
    return "" if name in STANDARD else name


def _graph(proto: onnx.GraphProto, files: Files) -> Graph:
    initializers = {t.name: files.array(t) for t in proto.initializer}
    initializers |= {t.values.name: files.dense(t) for t in proto.sparse_initializer}
    names = [*proto.initializer, *(t.values for t in proto.sparse_initializer)]
    _refuse_twice([f"initializer {t.name}" for t in names], files.path)
    nodes = _sorted([_node(n, files) for n in proto.node], files.path)
    constants = {n.outputs[0]: value for n in nodes if (value := _constant(n)) is not None}
    initializers |= constants
    nodes = tuple(n for n in nodes if _constant(n) is None)
    inputs = tuple(v.name for v in proto.input if v.name not in initializers)
    types = {v.name: v.type for v in (*proto.input, *proto.output)}
    return Graph(nodes, inputs, tuple(v.name for v in proto.output), initializers, types)


def _constant(node: Node) -> np.ndarray | None:
    """The tensor that a node is, if it is one."""
    if node.op != "Constant":
        return None
    values = (node.attributes.get(key) for key in ("value", "sparse_value"))
    return next((v for v in values if isinstance(v, np.ndarray)), None)


def _node(proto: onnx.NodeProto, files: Files) -> Node:
    attributes = {a.name: _attribute(a, files) for a in proto.attribute}
    ends = tuple(proto.input), tuple(proto.output)
    return Node(proto.op_type, _domain(proto.domain), proto.overload, *ends, attributes, proto.name)


def _attribute(proto: onnx.AttributeProto, files: Files) -> Any:
    if proto.ref_attr_name:
        return Reference(proto.ref_attr_name)
    if proto.type == AttributeProto.GRAPH:
        return _graph(proto.g, files)
    if proto.type == AttributeProto.TENSOR:
        return files.array(proto.t)
    if proto.type == AttributeProto.SPARSE_TENSOR:
        return files.dense(proto.sparse_tensor)
    value = helper.get_attribute_value(proto)
    if proto.type == AttributeProto.STRINGS:
        return [s.decode(errors="replace") for s in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _sorted(nodes: list[Node], path: Path) -> tuple[Node, ...]:
    """In an order in which every node comes after what it reads; a cycle is refused."""
    makers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if makers.setdefault(name, i) != i:
                raise UserError(f"two nodes make {name!r}", op=node.where, location=str(path))
    needs = [{makers[n] for n in _reads(node) if n in makers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for i, sources in enumerate(needs):
        for source in sources:
            readers[source].append(i)
    ready = [i for i, sources in enumerate(needs) if not sources][::-1]
    left, order = [len(sources) for sources in needs], []
    while ready:
        order.append(i := ready.pop())
        for reader in reversed(readers[i]):
            left[reader] -= 1
            if not left[reader]:
                ready.append(reader)
    if len(order) < len(nodes):
        stuck = next(node for node, n in zip(nodes, left, strict=True) if n)
        raise UserError("the graph has a cycle", op=stuck.where, location=str(path))
    return (
        tuple(nodes[i] for i in sorted(order))
        if _in_order(needs)
        else tuple(nodes[i] for i in order)
    )


def _in_order(needs: list[set[int]]) -> bool:
    return all(max(sources, default=-1) < i for i, sources in enumerate(needs))


def _reads(node: Node) -> Iterator[str]:
    """Names that a node reads, from around it too when it has sub-graphs."""
    yield from node.inputs
    for graph in node.graphs:
        own = {*graph.inputs, *graph.initializers, *(o for n in graph.nodes for o in n.outputs)}
        yield from (name for n in graph.nodes for name in _reads(n) if name not in own)
        yield from (name for name in graph.outputs if name not in own)


def _require_names(graph: Graph, path: Path) -> None:
    known = {*graph.inputs, *graph.initializers, *(o for n in graph.nodes for o in n.outputs), ""}
    for node in graph.nodes:
        for name in _reads(node):
            if name not in known:
                raise UserError(f"nothing makes {name!r}", op=node.where, location=str(path))
    for name in graph.outputs:
        if name not in known:
            raise UserError(f"nothing makes the output {name!r}", location=str(path))


def _refuse_twice(names: list[str], path: Path) -> None:
    """Names are given once: this reader would take one of two, and another the other."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"the model has the {twice!r} twice", location=str(path))


def _refuse_recursion(functions: Mapping[Any, Function], path: Path) -> None:
    calls = {
        key: {k for n in f.graph.walk() if (k := (n.domain, n.op, n.overload)) in functions}
        for key, f in functions.items()
    }
    done: set[Any] = set()
    while len(done) < len(calls):
        leaves = {key for key, called in calls.items() if key not in done and called <= done}
        if not leaves:
            name = next(key for key in calls if key not in done)[1]
            raise UserError(f"the function {name} calls itself", location=str(path))
        done |= leaves
