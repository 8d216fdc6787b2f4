"""The order of an ONNX graph's nodes, and the mistakes in names that are refused."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import Message

from jq.base.errors import UserError
from jq.frontends.onnx.graph import Function, Graph, Node
from jq.frontends.onnx.values import Value, known


def sorted_nodes(nodes: list[Node], path: Path) -> tuple[Node, ...]:
    """The nodes in an order in which each comes after what it reads; a cycle is refused."""
    makers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if makers.setdefault(name, i) != i:
                raise UserError(f"two nodes make {name!r}", op=node.where, location=str(path))
    needs = [{makers[n] for n in reads(node) if n in makers} for node in nodes]
    if all(max(sources, default=-1) < i for i, sources in enumerate(needs)):
        return tuple(nodes)
    try:
        return tuple(nodes[i] for i in TopologicalSorter(dict(enumerate(needs))).static_order())
    except CycleError as error:
        stuck = nodes[min(error.args[1])]
        raise UserError("the graph has a cycle", op=stuck.where, location=str(path)) from None


def reads(node: Node) -> Iterator[str]:
    """Names that a node reads, from around it too when it has sub-graphs."""
    yield from node.inputs
    for graph in node.graphs:
        own = {*graph.inputs, *graph.initializers, *(o for n in graph.nodes for o in n.outputs)}
        yield from (name for n in graph.nodes for name in reads(n) if name not in own)
        yield from (name for name in graph.outputs if name not in own)


def require_names(graph: Graph, path: Path) -> None:
    known = {*graph.inputs, *graph.initializers, *(o for n in graph.nodes for o in n.outputs), ""}
    for node in graph.nodes:
        for name in reads(node):
            if name not in known:
                raise UserError(f"nothing makes {name!r}", op=node.where, location=str(path))
    for name in graph.outputs:
        if name not in known:
            raise UserError(f"nothing makes the output {name!r}", location=str(path))


def refuse_twice(names: list[str], path: Path) -> None:
    """Names are given once: this reader would take one of two, and another the other."""
    if len(set(names)) < len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise UserError(f"the model has the {twice!r} twice", location=str(path))


def refuse_recursion(functions: Mapping[Any, Function], path: Path) -> None:
    calls = {
        key: {k for n in f.graph.walk() if (k := (n.domain, n.op, n.overload)) in functions}
        for key, f in functions.items()
    }
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        _, name, _ = error.args[1][0]
        raise UserError(f"the function {name} calls itself", location=str(path)) from None


def require_text(message: Message, path: Path) -> None:
    """Refuses names that are no UTF-8: protobuf gives them as bytes, without a word."""
    for kind, value in message.ListFields():
        values = (value,) if isinstance(value, str | bytes | Message) else value
        if kind.type == kind.TYPE_STRING and any(isinstance(v, bytes) for v in values):
            raise UserError(f"{kind.full_name} is no UTF-8 text", location=str(path))
        if kind.message_type is not None:
            for each in values:
                require_text(each, path)


# Number of trips of a loop, where it does not depend on the model's inputs.
# A loop that a framework wrote for `while i < length` has a condition and no number of trips. The
# part of its body that the condition is made from, a counter and a bound, is run by itself.
LIMIT = 4096  # trips that are looked at
Run = Callable[[Graph, Sequence[Value]], list[Value]]


def trip_count(run: Run, body: Graph, most: int, go: bool, carried: Sequence[Value]) -> int | None:
    """Number of trips, at most `most`.

    Args:
        run: computes a sub-graph.
        body: of ONNX's `Loop`: takes the number of the trip, the condition and what is carried,
            gives the condition, what is carried and what is collected.
        most: trips, whatever the condition says.
        go: the condition before the first trip.

    Returns:
        None where the condition depends on the inputs, or changes and still holds after 4,096
        trips."""
    graph, needed = _deciding(body)
    fixed = not needed and body.inputs[0] not in {n for node in graph.nodes for n in reads(node)}
    state = [value if k in needed else None for k, value in enumerate(carried)]
    for i in range(min(most, LIMIT)):
        if not go:
            return i
        again, *values = run(graph, [np.asarray(i, np.int64), np.asarray(True), *state])
        if (now := known(again)) is None:
            return most if i == most - 1 else None
        for k, value in zip(needed, values, strict=True):
            state[k] = value
        go = bool(now.reshape(-1)[0])
        if go and fixed:
            return most
    return most if most <= LIMIT else None


def _deciding(body: Graph) -> tuple[Graph, list[int]]:
    """The nodes that make the condition, and the numbers of the carried values that they need."""
    inputs = body.inputs[2:]
    outputs = body.outputs[1 : 1 + len(inputs)]
    names, size = {body.outputs[0]}, 0
    while len(names) > size:
        size = len(names)
        for node in reversed(body.nodes):
            if names & set(node.outputs):
                names |= set(reads(node))
        names |= {after for name, after in zip(inputs, outputs, strict=True) if name in names}
    needed = [k for k, name in enumerate(inputs) if name in names]
    nodes = tuple(node for node in body.nodes if names & (set(node.outputs) - {""}))
    asked = (body.outputs[0], *(outputs[k] for k in needed))
    return replace(body, nodes=nodes, outputs=asked), needed
