"""A drawn ONNX graph under construction, and the steps that it is made of.

A step reads one of the last tensors and adds nodes. Shapes are those that the `onnx` package
infers: a node that does not fit, or whose result is large or empty, is not added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LARGEST = 4096  # elements of a tensor
OLDEST, NEWEST = 11, 27  # of the standard; ONNX Runtime 1.32 has no `QuantizeLinear` of 28
Shape = tuple[int, ...]


@dataclass
class Graph:
    """Nodes so far, and the shape of each float tensor that a next one may read.

    Attributes:
        source: shape and type of the input `x`.
        opset: of the standard domain.
    """

    rng: np.random.Generator
    source: tuple[Shape, int]
    opset: int
    nodes: list[Any] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def of(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def const(self, *shape: int) -> str:
        """Weights: results of products are about as large as what goes in."""
        width = np.sqrt(np.prod(shape[1:], dtype=float)) if len(shape) > 1 else 1.0
        return self.fixed((self.rng.normal(size=shape) / width).astype(np.float32))

    def fixed(self, value: Any, dtype: Any = None) -> str:
        name = f"w{len(self.arrays)}"
        self.arrays[name] = np.asarray(value, dtype)
        return name

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int = 1,
        domain: str = "",
        shape: Shape | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Names of the results; none if the node does not fit. `shape` is that of an operator that
        is not of the standard."""
        count = len(self.nodes)
        names = [f"t{count}"] + [f"t{count}_{i}" for i in range(1, outputs)]
        node = helper.make_node(op, inputs, names, name=f"n{count}", domain=domain, **attributes)
        self.nodes.append(node)
        found = {names[0]: (TensorProto.FLOAT, shape)} if shape else self._inferred(names)
        if found is None:
            self.nodes.pop()
            return []
        self.shapes |= {k: s for k, (kind, s) in found.items() if kind == TensorProto.FLOAT and s}
        return names

    def _inferred(self, names: list[str]) -> dict[str, tuple[int, Shape]] | None:
        try:
            model = self.model([])
            known = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
        except (onnx.shape_inference.InferenceError, ValueError):
            return None
        found = {}
        for value in known.value_info:
            kind = value.type.tensor_type
            shape = tuple(d.dim_value for d in kind.shape.dim)
            if value.name in names:
                found[value.name] = (kind.elem_type, shape)
        sizes = [np.prod(s, dtype=int) for _, s in found.values()]
        whole = set(found) == set(names) and all(0 < n <= LARGEST for n in sizes)
        return found if whole else None

    def model(self, outputs: Sequence[Any], shape: Sequence[Any] | None = None) -> onnx.ModelProto:
        """With other sizes of the input, if they are given."""
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        x = helper.make_tensor_value_info("x", self.source[1], shape or self.source[0])
        read = {name for n in self.nodes for name in n.input}
        arrays = [numpy_helper.from_array(v, k) for k, v in self.arrays.items() if k in read]
        version = max(10, helper.find_min_ir_version_for(opsets[:1]))  # 10: the first with int4
        made = helper.make_graph(self.nodes, "drawn", [x], outputs, arrays)
        return helper.make_model(made, opset_imports=opsets, ir_version=version)

    def ends(self) -> list[str]:
        """Results that no node reads."""
        read = {name for n in self.nodes for name in n.input}
        return [o for n in self.nodes for o in n.output if o not in read]

    def pick(self, *ranks: int) -> str | None:
        """One of the last tensors, of one of these ranks; of any if none is given."""
        names = [n for n, s in self.shapes.items() if not ranks or len(s) in ranks][-3:]
        return str(self.rng.choice(names)) if names else None


Step = Callable[[Graph], None]
STEPS: list[Step] = []


def on(*ranks: int, since: int = OLDEST) -> Callable[[Callable[[Graph, str, Any], Any]], Step]:
    """A step that reads a tensor of one of these ranks, from this opset on; nothing happens where
    there is none."""

    def register(function: Callable[[Graph, str, Any], Any]) -> Step:
        def step(g: Graph) -> None:
            x = g.pick(*ranks)
            if x is not None and g.opset >= since:
                function(g, x, g.shapes[x])

        STEPS.append(step)
        return step

    return register


def over(
    g: Graph, op: str, x: str, axes: Sequence[int], since: int, **attributes: Any
) -> list[str]:
    """A node with axes, which are an input from the opset `since` on."""
    if g.opset >= since:
        return g.add(op, [x, g.fixed(axes, np.int64)], **attributes)
    return g.add(op, [x], axes=list(axes), **attributes)
