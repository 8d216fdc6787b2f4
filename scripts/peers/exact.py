"""A quantized ONNX program on exact integers: what its author meant, whatever a processor does.

Without VNNI the usual int8 product adds pairs in 16 bits and saturates, silently. The same program
with its products in float has the sums as they are:

    Q/DQ pairs        as they stand, not fused: float32 products of codes times scales
    MatMulInteger     MatMul of float64, exact
    ConvInteger       Conv of float32, each sum rounded by 2^-24 of itself at most
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers.case import DYNAMIC, STATIC, Arrays, Contender

_FLOAT = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}


class ExactProgram:
    """The ONNX file of a contender, run so."""

    def __init__(self, path: Path) -> None:
        import onnx
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        model = widened(onnx.load(path))
        self.session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.names = [i.name for i in self.session.get_inputs()]

    def __call__(self, inputs: Arrays) -> Arrays:
        results: Arrays = self.session.run(None, dict(zip(self.names, inputs, strict=True)))
        return results


def exact_program(contender: Contender, path: Path) -> ExactProgram | None:
    """None where there is no ONNX file of the program, or nothing in it multiplies integers."""
    if contender.kind not in (DYNAMIC, STATIC) or path.suffix != ".onnx":
        return None
    return ExactProgram(path)


def widened(model: Any) -> Any:
    """The model with products of integers as products of floats, their zero points off before."""
    from onnx import TensorProto, helper

    nodes: list[Any] = []
    for node in model.graph.node:
        op = _FLOAT.get(node.op_type)
        if op is None:
            nodes.append(node)
            continue
        kind = TensorProto.DOUBLE if op == "MatMul" else TensorProto.FLOAT
        wide = []
        for i, operand in enumerate(node.input[:2]):
            own = f"{node.output[0]}_wide{i}"
            nodes.append(helper.make_node("Cast", [operand], [own], to=kind))
            zero = node.input[2 + i] if len(node.input) > 2 + i else ""
            if zero:
                nodes.append(helper.make_node("Cast", [zero], [f"{own}_zero"], to=kind))
                nodes.append(helper.make_node("Sub", [own, f"{own}_zero"], [f"{own}_off"]))
                own = f"{own}_off"
            wide.append(own)
        sums = f"{node.output[0]}_wide"
        product = helper.make_node(op, wide, [sums])
        product.attribute.extend(node.attribute)
        nodes.append(product)
        nodes.append(helper.make_node("Cast", [sums], [node.output[0]], to=TensorProto.INT32))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model
