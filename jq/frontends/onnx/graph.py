"""An ONNX model as plain data: graphs of nodes, functions, and the file that holds them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from jq.base.errors import UserError

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
        where: how messages name it."""

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
    def graphs(self) -> "list[Graph]":
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
        functions: by domain, name and overload."""

    path: Path
    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], Function]
    producer: str = ""


# An ONNX file without its large tensors: those stay where they are until they are wanted.
# A model in one file holds its weights inside the protobuf message. Parsing that copies them, and
# reading each copies them again. So the message is walked once over the mapped file, large
# `raw_data` fields are left out, and an external-data entry with the location `INSIDE` says where
# they are.
INSIDE = "\0inside"  # no file can have this name
_LARGE = 1 << 14
_CUT = "cut"
# field number -> what is inside of it, from ModelProto down to `TensorProto.raw_data`
_TENSOR: dict[int, Any] = {9: _CUT}
_MODEL: dict[int, Any] = {7: {5: _TENSOR, 1: {5: {5: _TENSOR}}}}


def without_tensors(data: Any, where: str) -> bytes:
    """The serialized model with large `raw_data` replaced by references into `data`."""
    try:
        return b"".join(_message(data, 0, len(data), _MODEL))
    except (IndexError, ValueError) as error:
        what = f"no ONNX model, or a damaged one: {error}"
        raise UserError(what, location=where, hint="export it again") from None


def _message(data: Any, start: int, end: int, inside: dict[int, Any]) -> Iterator[bytes]:
    """The fields of the message in [start, end), with those in `inside` rewritten."""
    at = kept = start
    cut = False
    while at < end:
        begin = at
        tag, at = _varint(data, at, end)
        field, kind = tag >> 3, tag & 7
        if kind != 2:
            at = _skip(data, at, end, kind)
            continue
        length, at = _varint(data, at, end)
        if at + length > end:
            raise ValueError(f"field {field} at byte {begin} ends after what holds it")
        wanted, body = inside.get(field), at
        at += length
        if wanted is None or (wanted is _CUT and length < _LARGE):
            continue
        yield data[kept:begin]
        kept = at
        if wanted is _CUT:
            yield _reference(body, length)
            cut = True
            continue
        new = b"".join(_message(data, body, at, wanted))
        yield _number(field << 3 | 2) + _number(len(new)) + new
    yield data[kept:end]
    if cut:  # after all else: the last one counts, and the tensor may say where its data are too
        tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
        yield bytes(tensor.SerializeToString())


def _skip(data: Any, at: int, end: int, kind: int) -> int:
    if kind == 0:
        return _varint(data, at, end)[1]
    if kind not in (1, 5):
        raise ValueError(f"unknown wire type {kind} at byte {at}")
    at += 8 if kind == 1 else 4
    if at > end:
        raise ValueError(f"byte {at} is after the end")
    return at


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError(f"a number at byte {at} does not end")


def _reference(offset: int, length: int) -> bytes:
    """External-data entries as `TensorProto` holds them."""
    pairs = {"location": INSIDE, "offset": str(offset), "length": str(length)}
    tensor = onnx.TensorProto()
    for key, value in pairs.items():
        tensor.external_data.add(key=key, value=value)
    return bytes(tensor.SerializeToString())


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
