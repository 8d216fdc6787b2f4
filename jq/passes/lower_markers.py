"""Markers that are left become the arithmetic of their decomposition; then only plain StableHLO.

%d = composite "jq.dequantize" %codes, %scale -> convert, broadcast_in_dim, multiply
"""

from dataclasses import dataclass

from jq.ir import Op, Program, at, func, ir
from jq.ir.build import replace
from jq.ir.encodings import drop_encodings
from jq.ir.markers import marker_kind
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class LowerMarkers(Pass):
    name = "lower-markers"

    def run(self, program: Program, cx: PassContext) -> bool:
        functions = {
            op.name.value: op
            for op in program.module.body.operations
            if isinstance(op, func.FuncOp)
        }
        changed = False
        for op in program.walk():
            if marker_kind(op):
                symbol = ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
                replace(op, inline(op, functions[symbol]))
                changed = True
        for symbol in set(program.decompositions.values()) & set(functions):
            functions[symbol].erase()
        program.decompositions.clear()
        drop_encodings(program)
        program.run_passes("func.func(canonicalize,cse)")
        program.drop_unused_weights()
        return changed


def inline(op: Op, fn: func.FuncOp) -> list[ir.Value]:
    """Copies the function's ops in front of `op`; the values that it returns."""
    block = fn.entry_block
    values: dict[ir.Value, ir.Value] = dict(zip(block.arguments, op.operands, strict=True))
    with at(op):
        for inner in block.operations:
            operands = [values[v] for v in inner.operands]
            if isinstance(inner, func.ReturnOp):
                return operands
            copy = inner.operation.clone()
            for index, value in enumerate(operands):
                copy.operands[index] = value
            values.update(zip(inner.results, copy.results, strict=True))
    raise AssertionError("a function without a return")
