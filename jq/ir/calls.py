"""Calls of functions that get their body only when the module is handed over (kernels)."""

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from jq.ir.build import NAME
from jq.ir.mlir_context import editing
from jq.ir.program import Program
from jq.ir.types import tensor_type

Shaped = tuple[Sequence[int], Any]  # shape and NumPy dtype


def call(
    program: Program,
    symbol: str,
    attributes: dict[str, str],
    operands: Sequence[ir.Value],
    results: Sequence[Shaped],
    *,
    name: str,
) -> list[ir.Value]:
    """Calls `@symbol` at the current insertion point; it is declared when nobody has yet.

    Args:
        attributes: string attributes of the declaration; equal symbols mean equal declarations.
        name: `jq.name` of the call.
    """
    with editing():
        kinds = [tensor_type(shape, dtype) for shape, dtype in results]
    _declare(program, symbol, attributes, [v.type for v in operands], kinds)
    op = ir.Operation.create(
        "func.call",
        results=kinds,
        operands=list(operands),
        attributes={"callee": ir.FlatSymbolRefAttr.get(symbol), NAME: ir.StringAttr.get(name)},
    )
    return list(op.results)


def _declare(
    program: Program,
    symbol: str,
    attributes: dict[str, str],
    operands: list[ir.Type],
    results: list[ir.Type],
) -> None:
    for op in program.module.body.operations:
        if isinstance(op, func.FuncOp) and op.name.value == symbol:
            return
    with editing(), ir.InsertionPoint(program.module.body):
        declared = func.FuncOp(symbol, (operands, results), visibility="private")
        for key, value in attributes.items():
            declared.attributes[key] = ir.StringAttr.get(value)
