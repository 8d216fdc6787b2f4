"""TOSA flatbuffers (`.tosa`, version 1.0) as models: the integers of the file, exactly."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jq.base import UserError, read_input
from jq.frontends.model import Model
from jq.frontends.tosa.operators import CALLS, Operator
from jq.frontends.tosa.schema import OPERATORS, SCHEMA, TYPES

_DTYPES = {number: name for name, number in TYPES.items() if name not in ("int4", "int48", "shape")}
LARGEST = 1 << 34  # elements of a tensor


def load_tosa(path: Path) -> Model:
    """The model of a file: inputs and outputs have its types and shapes.

    Raises:
        UserError: it is damaged, or has an operator or a type that is not read."""
    graph = _Graph(path)
    example = tuple(graph.spec(name) for name in graph.inputs)
    model = Model(graph, graph.params, example, name=path.stem, x64=True, input_names=graph.inputs)
    with jax.enable_x64(True):
        try:
            jax.eval_shape(graph, graph.params, *example)
        except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
            said = str(error).strip().partition("\n")[0]
            raise graph.damaged(f"its operators do not fit together: {said:.200}") from error
    return model


class _Graph:
    """Tensors by name and operators in their order; called as a model's function is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            (region,) = SCHEMA.decode("Graph", read_input(path))["regions"]
            (block,) = region["blocks"]
            self.tensors = {t["name"]: t for t in block["tensors"]}
            self.inputs = [str(name) for name in block.get("inputs", ())]
            self.outputs = [str(name) for name in block["outputs"]]
            shapes = {s["name"]: s["data"].view("<i8") for s in block.get("shapes", ())}
        except UserError as error:
            raise self.damaged(error.message) from error
        except (KeyError, ValueError) as error:
            raise self.damaged(f"not one block of tensors: {error}") from error
        self.operators = [self.operator(op) for op in block.get("operators", ())]
        if unknown := sorted({op.kind for op in self.operators} - CALLS.keys()):
            raise UserError(f"{', '.join(unknown)}: not read", location=str(path))
        given = {name: self.data(name) for name, t in self.tensors.items() if "data" in t}
        self.params = {name: a for name, a in given.items() if a.size > 1}
        self.known: dict[str, np.ndarray] = {**shapes, **given}

    def damaged(self, why: str) -> UserError:
        return UserError(f"no TOSA file, or a damaged one: {why}", location=str(self.path))

    def operator(self, fields: Any) -> Operator:
        try:
            kind = OPERATORS[int(fields["op"]) - 1]
            attributes = fields.get("attribute", (kind, {}))[1]
            (name,) = fields["outputs"]
        except (KeyError, IndexError, ValueError) as error:
            raise self.damaged("an operator has no kind, or not one result") from error
        return Operator(kind, tuple(fields.get("inputs", ())), name, attributes)

    def spec(self, name: str) -> jax.ShapeDtypeStruct:
        """The type and shape that the file states of a tensor."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise self.damaged(f"there is no tensor {name!r:.60}")
        shape = tuple(int(n) for n in tensor.get("shape", ()))
        if (dtype := _DTYPES.get(tensor.get("type", 0))) is None:
            raise UserError(f"{name}: its type is not read", location=str(self.path))
        if min(shape, default=1) < 0 or int(np.prod(shape, dtype=object)) > LARGEST:
            raise self.damaged(f"{name} has no size, or one beyond all memory")
        return jax.ShapeDtypeStruct(shape, np.dtype(dtype))

    def data(self, name: str) -> np.ndarray:
        spec, data = self.spec(name), self.tensors[name]["data"]
        size = int(np.prod(spec.shape, dtype=object)) * spec.dtype.itemsize
        if data.size < size:
            raise self.damaged(f"{name} has {data.size} bytes, not those of its shape")
        return np.asarray(data[:size].view(spec.dtype).reshape(spec.shape))

    def __call__(self, params: dict[str, Any], *inputs: Any) -> dict[str, Any]:
        values: dict[str, Any] = {**self.known, **params}
        values |= dict(zip(self.inputs, inputs, strict=True))
        for op in self.operators:
            if not op.kind.startswith("CONST"):
                made = CALLS[op.kind](op, values.__getitem__, self.known)
                wanted = self.spec(op.output)
                if made.shape != wanted.shape or made.dtype != wanted.dtype:
                    raise ValueError(f"{op.output} is {made.dtype}{made.shape}")
                values[op.output] = made
        return {name: values[name] for name in self.outputs}
