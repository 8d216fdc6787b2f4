"""Description of an ONNX file for `jaxq inspect`, read without tracing anything."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from jq.frontends.onnx import operators as _  # noqa: F401  (defines them)
from jq.frontends.onnx.graph import File, Node
from jq.frontends.onnx.inference import has_definition, schema_of
from jq.frontends.onnx.read import read_file
from jq.frontends.onnx.registry import OPERATORS
from jq.frontends.onnx.tensors import numpy_type, shape_of

# Input positions: tensor, scale, zero point. Of others they follow from the operands' names.
_OPERANDS = {
    "QuantizeLinear": [(0, 1, 2)],
    "MatMulNBits": [(1, 2, 3)],
    "GatherBlockQuantized": [(0, 2, 3)],
}


_DYNAMIC = {
    "kind": "dynamic activation",
    "type": "uint8",
    "granularity": "per-tensor",
    "zero_point": "computed",
}


def describe_onnx(path: str | Path) -> dict[str, Any]:
    """Inputs, outputs, operators and what is quantized.

    Keys: `inputs` and `outputs` (name, type, shape; a symbolic size is its name), `sizes` (the
    symbolic ones), `opsets`, `operators` (op, version, count, supported), `quantized` (tensor,
    what it is, type, granularity, zero point, read by), `parameters` and `bytes`.

    Raises:
        UserError: the file is damaged, or refers to files outside of its folder."""
    file = read_file(Path(path))
    ends = [_value(file, name) for name in file.graph.inputs]
    arrays = file.graph.initializers.values()
    return {
        "inputs": ends,
        "outputs": [_value(file, name) for name in file.graph.outputs],
        "sizes": sorted({n for end in ends for n in end["shape"] or () if isinstance(n, str)}),
        "opsets": {domain or "ai.onnx": n for domain, n in file.opsets.items()},
        "producer": file.producer,
        "operators": _operators(file),
        "quantized": _quantized(file),
        "parameters": sum(a.size for a in arrays),
        "bytes": sum(a.nbytes for a in arrays),
    }


def _value(file: File, name: str) -> dict[str, Any]:
    kind = file.graph.types[name]
    if not kind.HasField("tensor_type"):
        return {"name": name, "type": kind.WhichOneof("value"), "shape": None}
    code, shape = kind.tensor_type.elem_type, shape_of(kind)
    dtype = numpy_type(code, name).name if code else "unknown"
    if shape is not None:
        shape = [f"{name}[{axis}]" if n is None else n for axis, n in enumerate(shape)]
    return {"name": name, "type": dtype, "shape": shape}


def _operators(file: File) -> list[dict[str, Any]]:
    nodes = list(file.graph.walk())
    counts = Counter((n.domain, n.op) for n in nodes)
    first = {(n.domain, n.op): n for n in reversed(nodes)}
    rows = []
    for (domain, op), count in sorted(counts.items()):
        opset = file.opsets.get(domain, 1)
        schema = schema_of(op, domain, opset)
        node = first[domain, op]
        there = (
            (domain, op) in OPERATORS
            or (domain, op, node.overload) in file.functions
            or has_definition(node, opset)
        )
        name = f"{domain}.{op}" if domain else op
        version = schema.since_version if schema else opset
        rows.append({"op": name, "version": version, "count": count, "supported": there})
    return rows


def _operands(node: Node) -> list[tuple[int, int, int]]:
    op = OPERATORS.get((node.domain, node.op))
    if op is None or node.op in _OPERANDS:
        return _OPERANDS.get(node.op, [])
    at = {operand.name: i for i, operand in enumerate(op.operands)}
    found = [(i, at.get(f"{n}_scale", -1), at.get(f"{n}_zero_point", -1)) for n, i in at.items()]
    return [f for f in found if max(f[1:]) >= 0 and f[0] < len(node.inputs)]


def _quantized(file: File) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for node in file.graph.walk():
        for at, scale, zero in _operands(node):
            row = _row(file, node, at, scale, zero)
            rows.setdefault(row["tensor"], row)
    for node in file.graph.walk():
        if node.op == "DynamicQuantizeLinear":
            rows[node.outputs[0]] = {"tensor": node.outputs[0], **_DYNAMIC, "op": node.op}
    return list(rows.values())


def _row(file: File, node: Node, at: int, scale: int, zero: int) -> dict[str, Any]:
    arrays = file.graph.initializers

    def of(i: int) -> np.ndarray | None:
        return arrays.get(node.inputs[i]) if 0 <= i < len(node.inputs) else None

    data, factor, point = of(at), of(scale), of(zero)
    block = node.attributes.get("block_size", 0)
    if block:
        granularity = f"per-block of {block}"
    elif scale < 0 and point is None:
        granularity = "per-tensor"
    else:
        known = factor if factor is not None else point
        granularity = "per-channel" if known is not None and known.size > 1 else "per-tensor"
    packed = node.op in ("MatMulNBits", "GatherBlockQuantized")
    bits = node.attributes.get("bits", 4) if packed else 0
    dtypes = [a.dtype for a in (data, point) if a is not None]
    return {
        "tensor": node.inputs[at],
        "kind": "weight" if data is not None else "activation",
        "type": f"uint{bits}" if bits else dtypes[0].name if dtypes else "uint8",
        "granularity": granularity,
        "zero_point": "none" if point is None else "zero" if not point.any() else "given",
        "op": node.op,
    }
