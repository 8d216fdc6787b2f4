"""A network between its first codes and its last: what quantizes and dequantizes at its ends is cut
off, and inputs and outputs are codes with their scales."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.network import FLOAT_MOVES, Network, Node, Tensor

FLOAT_ENDS = "--ends float (ends='float') keeps floats outside, where the form has them"


def cut(network: Network, entries: int) -> Network:
    """The same network of codes alone; inputs and outputs keep their names. What is computed in
    float in front of the first codes, as an embedding, is left to the host: its codes are inputs.
    `entries`: the most that a table of the device has.

    Raises:
        UserError: something is computed in float, by its name in the model."""
    return _Cut(network, entries).network()


class _Cut:
    def __init__(self, given: Network, entries: int) -> None:
        self.given = given
        self.makers = {node.output.name: node for node in given.nodes}
        self.nodes: list[Node] = []
        self.chosen = input_codes(given, entries)
        self.inputs: dict[str, Tensor] = {}  # of codes, by name
        self.quantized: dict[tuple[str, str], Tensor] = {}  # of float tensors, by parameters
        self.codes: dict[str, Tensor] = {}  # of a quantized or a dequantized tensor
        self.floats = {t.name for t in given.inputs}  # floats that are computed of inputs alone
        self.host: dict[str, Any] = {}

    def network(self) -> Network:
        for node in self.given.nodes:
            self._add(node)
        inputs = [self.inputs.get(x.name, x) for x in self.given.inputs]
        outputs = tuple(self._result(t) for t in self.given.outputs)
        nodes = leading_to(outputs, self.nodes) if self.host else self.nodes
        read = {t.name for t in (*outputs, *(t for n in nodes for t in n.inputs))}
        inputs = [x for x in inputs if x.name in read or not self.host]
        inputs += [self.inputs[name] for name in self.host]
        return _scaled(Network(tuple(nodes), tuple(inputs), outputs, self.host))

    def _add(self, node: Node) -> None:
        inputs = [self.codes.get(t.name, t) for t in node.inputs]
        given = all(t.data is not None or t.name in self.floats for t in node.inputs)
        if given and node.kind not in ("quantize", "dequantize"):
            self.floats.add(node.output.name)
        if node.kind == "float" and node.output.name in self.floats:
            return
        if node.kind == "quantize":
            self.codes[node.output.name] = self._quantized(node.inputs[0], node)
        elif node.kind == "dequantize":
            self.codes[node.output.name] = _with(inputs[0], node.inputs[0])
        elif node.output.dtype != "float32":
            known = [_with(a, b) for a, b in zip(inputs, node.inputs, strict=True)]
            self.nodes.append(replace(node, inputs=tuple(known)))
        elif node.kind in FLOAT_MOVES and node.inputs[0].name in self.codes:
            output = _as(node.output, inputs[0])
            self.codes[node.output.name] = output
            self.nodes.append(replace(node, inputs=(inputs[0],), output=output))

    def _quantized(self, x: Tensor, node: Node) -> Tensor:
        """The codes of a float tensor that is an input, or an input moved."""
        parameters = attrgetter("dtype", "scale", "zero_point")
        key = x.name, str(parameters(node.output))
        if key in self.quantized:
            return self.quantized[key]
        codes = _as(x, node.output)
        if any(name == x.name for name, _ in self.quantized):
            codes = replace(codes, name=f"{x.name} as {node.output.name}")
        if (maker := self.makers.get(x.name)) is None:
            given = self.inputs.setdefault(x.name, _as(x, self.chosen[x.name]))
            if str(parameters(given)) == key[1]:
                codes = given
            else:
                codes = replace(codes, name=f"{x.name} as {node.output.name}")
                self.nodes.append(_looked_up(given, codes, node))
        elif maker.kind == "float" and x.name in self.floats:
            codes = self.inputs[node.output.name] = replace(codes, name=node.output.name)
            self.host[codes.name] = node.source
        elif maker.kind in FLOAT_MOVES:
            source = self._quantized(maker.inputs[0], node)
            self.nodes.append(replace(maker, inputs=(source,), output=codes))
        else:
            raise _float(maker)
        self.quantized[key] = codes
        return codes

    def _result(self, tensor: Tensor) -> Tensor:
        if tensor.name in self.codes:
            return self.codes[tensor.name]
        if tensor.dtype == "float32":
            if maker := self.makers.get(tensor.name):
                raise _float(maker)
            what = "an input as it is" if tensor.data is None else "a constant"
            raise UserError(f"an output is {what}, of floats", hint=FLOAT_ENDS)
        return tensor


def leading_to(outputs: Sequence[Tensor], nodes: Sequence[Any]) -> list[Any]:
    """The nodes that lead to the outputs, in their order."""
    read, found = {t.name for t in outputs}, list[Any]()
    for node in reversed(nodes):
        if node.output.name in read:
            read |= {t.name for t in node.inputs}
            found.append(node)
    return found[::-1]


def _scaled(network: Network) -> Network:
    """Codes of the model's own, moved before they have a scale, with that of their reader."""
    known: dict[str, Tensor] = {}
    for node in reversed(network.nodes):
        made = known.get(node.output.name)
        for t in node.inputs:
            if t.scale is not None:
                known[t.name] = t
            elif made is not None and node.out is None and t.dtype == node.output.dtype:
                known[t.name] = made

    def of(t: Tensor) -> Tensor:
        return _with(t, known[t.name]) if t.scale is None and t.name in known else t

    return _mapped(network, of)


def _mapped(network: Network, of: Callable[[Tensor], Tensor]) -> Network:
    nodes = (
        replace(n, inputs=tuple(map(of, n.inputs)), output=of(n.output)) for n in network.nodes
    )
    inputs, outputs = (tuple(map(of, ts)) for ts in (network.inputs, network.outputs))
    return Network(tuple(nodes), inputs, outputs, network.host)


def renamed(network: Network, names: Mapping[str, str]) -> Network:
    """The same with other names of tensors."""
    return _mapped(network, lambda t: replace(t, name=names.get(t.name, t.name)))


def output_names(network: Network, wanted: Sequence[str]) -> dict[str, str]:
    """The names of the model's outputs, for tensors that are neither inputs nor outputs before."""
    taken = {t.name for n in network.nodes for t in (*n.inputs, n.output)}
    taken |= {t.name for t in network.inputs}
    names: dict[str, str] = {}
    for tensor, name in zip(network.outputs, wanted, strict=True):
        is_input = any(t.name == tensor.name for t in network.inputs)
        if not is_input and tensor.name not in names and name not in taken:
            names[tensor.name] = name
            taken.add(name)
    return names


def _float(node: Node) -> UserError:
    kind = node.op.removeprefix("stablehlo.") if node.kind == "float" else node.kind
    what = f"{kind} is computed in float, and the ends are to be integers"
    return UserError(what, op=node.name, hint=FLOAT_ENDS)


def input_codes(network: Network, entries: int = 1 << 16) -> dict[str, Tensor]:
    """Codes of each float input by name: of its quantizations (or those of it moved) the first with
    the most bits whose codes have a table of at most `entries`; the others are made of it."""
    makers = {n.output.name: n for n in network.nodes}
    found: dict[str, tuple[tuple[bool, int], Tensor]] = {}
    for node in (n for n in network.nodes if n.kind == "quantize"):
        source, size = node.inputs[0], np.dtype(node.output.dtype).itemsize
        while source.name in makers and makers[source.name].kind in FLOAT_MOVES:
            source = makers[source.name].inputs[0]
        rank = 256**size <= entries, size
        if source.name not in found or rank > found[source.name][0]:
            found[source.name] = rank, replace(node.output, shape=source.shape)
    return {name: codes for name, (_, codes) in found.items()}


def _looked_up(given: Tensor, codes: Tensor, node: Node) -> Node:
    """An input's codes in a second quantization, which it makes of the number of each code."""
    if node.out is None or given.scale is None or given.scale.size > 1:
        raise UserError("an input is quantized in two ways", op=node.name, hint=FLOAT_ENDS)
    ends = np.iinfo(given.dtype)
    steps = np.arange(ends.min, ends.max + 1) - given.zero
    real = steps.astype(np.float32) * given.scale.reshape(()).astype(np.float32)
    exact = np.rint(real / np.float32(node.out.scale))
    numbers = {"steps": exact, "whole": np.array(1)}
    return Node("table", node.name, (given,), codes, "", {}, numbers, node.out)


def _as(tensor: Tensor, codes: Tensor) -> Tensor:
    """A tensor as codes of the type and scale of another."""
    return replace(tensor, dtype=codes.dtype, scale=codes.scale, zero_point=codes.zero_point)


def _with(tensor: Tensor, codes: Tensor) -> Tensor:
    """A tensor of codes with the scale that its reader gives it."""
    return replace(tensor, scale=codes.scale, zero_point=codes.zero_point)
