"""An ONNX graph in the making: Q/DQ pairs around ops, and tensors in whatever axes they come in.

A transpose or reshape of the network is not written where it stands: a tensor that is read in other
axes or another shape than it was computed in is transposed or reshaped there, once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from jq.base.errors import InternalError
from jq.device.network import Tensor

Order = tuple[int, ...]


@dataclass
class Held:
    """Place of a tensor of the network in the graph.

    Attributes:
        names: of its codes, by the order of its axes there.
        reshaped: the tensor whose elements it has, in another shape.
        moved: the tensor whose axes `order` of it are its own."""

    tensor: Tensor
    names: dict[Order, str] = field(default_factory=dict)
    reshaped: Tensor | None = None
    moved: tuple[Tensor, Order] | None = None


class Graph:
    """Nodes, initializers and the tensors that they hold."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.constants: dict[Any, str] = {}
        self.held: dict[str, Held] = {}
        self.outputs: set[str] = set()
        self.layer = ""  # in the user's terms: the prefix of the names of nodes

    # Nodes and constants

    def op(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """A node with one result; its name."""
        output = output or f"{self.layer}/{kind}_{len(self.nodes)}"
        name = f"{self.layer}/{kind}#{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=name, **attributes))
        return output

    def constant(self, values: Any, dtype: Any) -> str:
        """An initializer; equal ones are one."""
        array = np.asarray(values).astype(dtype, order="C")
        key = array.dtype.name, array.shape, array.tobytes()
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.initializers.append(numpy_helper.from_array(array, name))
            self.constants[key] = name
        return self.constants[key]

    def quantized(self, x: str, scale: Any, zero: int, dtype: Any, output: str = "") -> str:
        """Codes of a float tensor, with one scale."""
        given = [x, self.constant(np.float32(scale), np.float32), self.constant(zero, dtype)]
        return self.op("QuantizeLinear", given, output)

    def dequantized(self, codes: str, scale: Any, zero: Any, dtype: Any, axis: int = 0) -> str:
        """The float tensor of codes; of a vector of scales, one for each index of `axis`."""
        scale = np.asarray(scale, np.float32)
        if scale.size == 1:
            scale, zero = scale.reshape(()), np.reshape(zero, ())
        zero = self.constant(np.broadcast_to(zero, scale.shape), dtype)
        given = [codes, self.constant(scale, np.float32), zero]
        if scale.ndim:
            return self.op("DequantizeLinear", given, axis=axis)
        return self.op("DequantizeLinear", given)

    def name_output(self, value: str, name: str) -> None:
        """Calls a value by the name of an output, which no node may have."""
        made = [n for n in self.nodes if value in n.output and value not in self.outputs]
        if value == name:
            self.outputs.add(name)
        elif not made:  # an input, a constant, or another output as well
            self.op("Identity", [value], name)
        else:
            for node in self.nodes:
                for names in (node.input, node.output):
                    names[:] = [name if n == value else n for n in names]
            for held in self.held.values():
                held.names = {k: name if v == value else v for k, v in held.names.items()}
            self.outputs.add(name)

    # Tensors of the network

    def hold(self, tensor: Tensor, name: str, order: Sequence[int] | None = None) -> None:
        """Says that a tensor's codes are `name`, with its axes in this order."""
        held = self.held.setdefault(tensor.name, Held(tensor))
        held.names[_order(tensor, order)] = name

    def reshape(self, tensor: Tensor, source: Tensor) -> None:
        self.held[tensor.name] = Held(tensor, reshaped=source)

    def transpose(self, tensor: Tensor, source: Tensor, order: Sequence[int]) -> None:
        self.held[tensor.name] = Held(tensor, moved=(source, tuple(order)))

    def orders(self, tensor: Tensor) -> list[Order]:
        """The orders in which a tensor can be had without a transpose, the first one first."""
        held = self._held(tensor)
        orders = list(held.names)
        if held.moved is not None:
            source, order = held.moved
            orders += [tuple(order.index(a) for a in o) for o in self.orders(source)]
        return orders or [_order(tensor, None)]

    def codes(self, tensor: Tensor, order: Sequence[int] | None = None) -> str:
        """The name of a tensor's codes, with its axes in this order."""
        held, wanted = self._held(tensor), _order(tensor, order)
        if wanted not in held.names:
            held.names[wanted] = self._found(held, wanted)
        return held.names[wanted]

    def _held(self, tensor: Tensor) -> Held:
        if tensor.name not in self.held:
            if tensor.data is None:
                raise InternalError(f"{tensor.name} is read before it is computed")
            self.hold(tensor, self.constant(tensor.data, tensor.dtype))
        return self.held[tensor.name]

    def _found(self, held: Held, wanted: Order) -> str:
        if held.moved is not None and not held.names:
            source, axes = held.moved
            return self.codes(source, [axes[a] for a in wanted])
        if held.tensor.data is not None:
            return self.constant(held.tensor.data.transpose(wanted), held.tensor.dtype)
        if not held.names:
            assert held.reshaped is not None
            held.names[_order(held.tensor, None)] = self.shaped(held.reshaped, held.tensor.shape)
            return self.codes(held.tensor, wanted)
        have, name = next(iter(held.names.items()))
        order = [have.index(a) for a in wanted]
        return self._around("Transpose", [name], held.tensor, perm=order)

    def shaped(self, source: Tensor, shape: Sequence[int]) -> str:
        """The codes of a tensor in another shape: reshapes in a row are one, of the first."""
        while (before := self._held(source).reshaped) is not None and not self._held(source).names:
            source = before
        name = self.codes(source)
        if source.shape == tuple(shape):
            return name
        return self._around("Reshape", [name], source, self.constant(shape, np.int64))

    def _around(self, kind: str, names: list[str], like: Tensor, *more: str, **attrs: Any) -> str:
        """An op that moves codes, between Q and DQ of the same parameters where they have some."""
        if like.scale is None:
            return self.op(kind, [*names, *more], **attrs)
        scale, zero = like.scale.reshape(-1)[0], like.zero
        floats = [self.dequantized(n, scale, zero, like.dtype) for n in names]
        return self.quantized(self.op(kind, [*floats, *more], **attrs), scale, zero, like.dtype)

    def move(
        self,
        kind: str,
        sources: Sequence[Tensor],
        output: Tensor,
        order: Sequence[int],
        *more: str,
        **attributes: Any,
    ) -> None:
        """An op whose result has the parameters of its operands, all in this order of axes."""
        names = [self.codes(s, order) for s in sources]
        self.hold(output, self._around(kind, names, sources[0], *more, **attributes), order)


def _order(tensor: Tensor, order: Sequence[int] | None) -> Order:
    """An order of axes for several tensors; their own for one that has another number of them."""
    axes = range(len(tensor.shape))
    return tuple(order if order is not None and len(order) == len(axes) else axes)


def value_info(name: str, dtype: str, shape: Sequence[int]) -> Any:
    """A graph's input or output."""
    kind = TensorProto.DataType.Value("FLOAT" if dtype == "float32" else dtype.upper())
    return helper.make_tensor_value_info(name, kind, list(shape))
