"""Number of trips of a loop, where it does not depend on the model's inputs.

A loop that a framework wrote for `while i < length` has a condition and no number of trips. The
part of its body that the condition is made from, a counter and a bound, is run by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jq.frontends.onnx.graph import Graph
from jq.frontends.onnx.validate import reads
from jq.frontends.onnx.values import Value, known

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
        trips.
    """
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
