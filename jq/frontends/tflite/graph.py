"""The graph of a TFLite file as it becomes ONNX: tensors are codes, ops stand between Q and DQ."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, defs, helper, numpy_helper

from jq.base.errors import UserError
from jq.frontends.onnx.operators.tflite import FUNCTIONS, TFLITE
from jq.frontends.tflite.schema import READ, SCHEMA, TYPES

OPSET, IR_VERSION = 21, 10
_DTYPES = {number: name for name, number in TYPES.items()} | {1: "float16", 10: "float64"}


class Graph:
    """Tensors by their number, and the ONNX nodes that compute them."""

    def __init__(self, data: bytes, path: Path) -> None:
        self.path = path
        try:
            self.model = SCHEMA.decode("Model", data)
            self.main = self.model["subgraphs"][0]
            self.tensors, self.buffers = self.main["tensors"], self.model["buffers"]
        except UserError as error:
            raise self.damaged(error.message) from error
        except (KeyError, IndexError) as error:
            raise self.damaged("there is no graph in it") from error
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.names = _apart([t.get("name", "") for t in self.tensors])
        self.floats: dict[int, str] = {}
        self.handles: dict[int, str] = {}  # variables, by the tensors that stand for them
        self.states: dict[str, int] = {}  # the tensors that are read of them first
        self.assigned: dict[str, int] = {}
        self.op = ""  # that is read, for messages

    def damaged(self, why: str) -> UserError:
        return UserError(f"no TFLite model, or a damaged one: {why}", location=str(self.path))

    def lacking(self, what: str) -> UserError:
        return UserError(f"{what} is not read of TFLite files", op=self.op, location=str(self.path))

    def operators(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The name of each operator, with its fields."""
        codes, found = self.model.get("operator_codes", []), []
        for fields in self.main.get("operators", []):
            at = fields.get("opcode_index", 0)
            if at >= len(codes):
                raise self.damaged("an operator has no code")
            code = codes[at]
            number = max(code.get("builtin_code", 0), code.get("deprecated_builtin_code", 0))
            custom = code.get("custom_code", number)
            found.append((READ.get(number, f"operator {custom!r:.60}"), fields))
        return found

    # Tensors

    def tensor(self, i: int) -> Mapping[str, Any]:
        if not 0 <= i < len(self.tensors):
            raise self.damaged(f"there is no tensor {i}")
        return dict(self.tensors[i])

    def shape(self, i: int) -> list[int]:
        shape = [int(n) for n in self.tensor(i).get("shape", ())]
        if min(shape, default=1) < 0:
            raise self.lacking("a tensor of unknown size")
        return shape

    def dtype(self, i: int) -> np.dtype[Any]:
        kind = self.tensor(i).get("type", 0)
        if kind not in _DTYPES:
            raise self.lacking(f"a tensor of type {kind}")
        return np.dtype(_DTYPES[kind])

    def scales(self, i: int) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Scales, zero points and their axis; None for what is not quantized."""
        found = self.tensor(i).get("quantization", {})
        if "details" in found:
            raise self.lacking("a quantization of other parameters than scales")
        scale = np.asarray(found.get("scale", ()), np.float32)
        if not scale.size or self.dtype(i).kind == "f":
            return None
        zero = np.asarray(found.get("zero_point", np.zeros(scale.size)), np.int64)
        axis, shape = found.get("axis", 0), self.shape(i)
        one = scale.size == 1
        if zero.size not in (1, scale.size) or not (one or shape[axis : axis + 1] == [scale.size]):
            raise self.damaged(f"the scales of {self.names[i]} are not those of its shape")
        return scale, np.broadcast_to(zero, scale.shape), axis

    def domain(self, i: int) -> str:
        """The domain of the operator that gives a tensor: of codes it is TFLite's own."""
        return "" if self.scales(i) is None else TFLITE

    def array(self, i: int) -> np.ndarray | None:
        """The elements of a constant."""
        at = self.tensor(i).get("buffer", 0)
        if not 0 <= at < len(self.buffers):
            raise self.damaged(f"there is no buffer {at}")
        data = self.buffers[at].get("data")
        if data is None or not data.size:
            return None
        shape, dtype = self.shape(i), self.dtype(i)
        if data.size != int(np.prod(shape, dtype=object)) * dtype.itemsize:
            raise self.damaged(f"{self.names[i]} has {data.size} bytes, not those of its shape")
        return data.view(dtype).reshape(shape)

    def known(self, i: int) -> np.ndarray:
        """The elements of a constant of integers: sizes, axes and the like."""
        found = self.array(i)
        if found is None:
            raise self.lacking("a parameter that is computed")
        if found.dtype.kind != "i":
            raise self.damaged(f"{self.names[i]} is no integers")
        return found

    # ONNX

    def add(self, kind: str, inputs: Iterable[str], count: int = 1, **attributes: Any) -> Any:
        """A node; the names of its results, of one the name."""
        given = list(inputs)  # which may add nodes in front
        outputs = [f"{self.op}#{kind}_{len(self.nodes)}_{n}" for n in range(count)]
        name = f"{self.op}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, given, outputs, name=name, **attributes))
        return outputs[0] if count == 1 else outputs

    def own(self, kind: str, x: Iterable[int | str], y: int, **how: Any) -> str:
        """A node of tensors or values that gives numbers, or codes as TFLite's kernels do."""
        domain = self.domain(y) if defs.has(kind) else TFLITE
        how["domain" if kind in FUNCTIONS else "overload"] = domain
        return str(self.add(kind, (v if isinstance(v, str) else self.real(v) for v in x), **how))

    def constant(self, values: Any, dtype: Any, name: str = "") -> str:
        name = name or f"#{len(self.initializers)}"
        array = np.ascontiguousarray(np.asarray(values).astype(dtype))
        self.initializers[name] = numpy_helper.from_array(array.reshape(np.shape(values)), name)
        return name

    def raw(self, i: int) -> str:
        """The name of a tensor as it is stored."""
        name = self.names[i] if 0 <= i < len(self.names) else str(self.tensor(i))
        if name not in self.initializers and (data := self.array(i)) is not None:
            self.constant(data, data.dtype, name)
        return name

    def real(self, i: int, order: Sequence[int] | None = None) -> str:
        """The numbers of a tensor, float32; its axes in another order."""
        data = self.array(i)
        if order is None or data is None:
            if i not in self.floats:
                self.floats[i] = self.dequantized(self.raw(i), i)
            found = self.floats[i]
            return self.add("Transpose", [found], perm=list(order)) if order else found
        name = f"{self.names[i]}#moved_{len(self.initializers)}"
        return self.dequantized(self.constant(data.transpose(order), data.dtype, name), i, order)

    def repeated(self, i: int, shape: Sequence[int]) -> str:
        """The numbers of a tensor, of a code that is stored once along the last axis of `shape`."""
        data, axes = self.array(i), [a for a, n in enumerate(shape) if n > 1]
        if data is None or data.size != 1 or self.scales(i) is None or not axes:
            return self.real(i)
        sizes = [shape[axes[-1]], *[1] * (len(shape) - axes[-1] - 1)]
        return self.dequantized(self.constant(np.full(sizes, data.item()), data.dtype), i)

    def bias(self, given: Sequence[int], x: int, w: int) -> list[str]:
        """The numbers of a bias of `w` on `x`, if any, as one or two terms: its integers have the
        step of their products, whatever the file says, and may have more bits than float32."""
        i = given[0] if given else -1
        if i < 0:
            return []
        sides, codes = [self.scales(t) for t in (x, w)], self.array(i)
        if self.dtype(i).kind != "i" or None in sides or codes is None:
            return [self.real(i)]
        step = np.multiply(*(side[0].astype(np.float64) for side in sides if side))
        terms = [(step * codes).astype(np.float32)]
        if not np.array_equal(np.rint(terms[0] / step), codes):
            terms.append((step * codes - terms[0]).astype(np.float32))
        return [self.constant(term, "f4") for term in terms]

    def dequantized(self, name: str, i: int, order: Sequence[int] | None = None) -> str:
        found = self.scales(i)
        if found is None:
            return name if self.dtype(i) != np.float16 else self.add("Cast", [name], to=1)
        scale, _, axis = found
        how = {} if scale.size == 1 else {"axis": axis if order is None else [*order].index(axis)}
        return str(self.add("DequantizeLinear", [name, *self._parameters(i)], **how))

    def _parameters(self, i: int) -> list[str]:
        """The scale and the zero point of a quantized tensor, or those along its axis."""
        scale, zero, _ = self.scales(i) or (np.ones(1), np.zeros(1), 0)
        shape, dtype = () if scale.size == 1 else scale.shape, self.dtype(i)
        if (zero < np.iinfo(dtype).min).any() or (zero > np.iinfo(dtype).max).any():
            raise self.damaged("a zero point is no code")
        return [self.constant(v.reshape(shape), d) for v, d in ((scale, "f4"), (zero, dtype))]

    def put(self, i: int, value: str, shaped: bool = False) -> None:
        """Says that a tensor is these numbers, or their codes; `shaped`: in its own shape."""
        if self.scales(i) is None:
            how = {"to": int(TensorProto.FLOAT16)} if self.dtype(i) == np.float16 else {}
            made = self.add("Cast" if how else "Identity", [value], **how)
        else:
            made = self.codes(value, i)
        if shaped:
            made = self.add("Reshape", [made, self.constant(self.shape(i), "i8")])
        self.store(i, made)

    def codes(self, value: str, i: int, **how: Any) -> str:
        """Those of a quantized tensor."""
        given = self._parameters(i)
        if self.initializers[given[0]].dims:
            raise self.lacking("an activation with several scales")
        return str(self.add("QuantizeLinear", [value, *given], **how))

    def store(self, i: int, value: str) -> None:
        """Calls the result of the last node by the name of a tensor."""
        if self.nodes[-1].output[0] != value:
            self.add("Identity", [value])
        self.nodes[-1].output[0] = self.names[i]

    def proto(self) -> ModelProto:
        """The ONNX model."""
        ends, kept = [], self.assigned
        assigned = {name: kept[name] for name in (*self.states, *kept) if name in kept}
        for key, more in (("inputs", self.states), ("outputs", assigned)):
            infos = [
                helper.make_tensor_value_info(
                    self.raw(i), helper.np_dtype_to_tensor_dtype(self.dtype(i)), self.shape(i)
                )
                for i in (*map(int, self.main.get(key, ())), *more.values())
            ]
            ends.append(infos)
        graph = helper.make_graph(self.nodes, self.path.stem, *ends, [*self.initializers.values()])
        opsets = [helper.make_opsetid(domain, v) for domain, v in (("", OPSET), (TFLITE, OPSET))]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _apart(given: Sequence[str]) -> list[str]:
    """Names of tensors that differ from one another, and from what `Graph` names with a `#`."""
    times = Counter(given)
    return [
        name if name and times[name] == 1 and "#" not in name else f"{name or 'tensor'}#{i}"
        for i, name in enumerate(given)
    ]
