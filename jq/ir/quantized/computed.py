"""Ops on quantized types that StableHLO's own passes write as ops on integers."""

from __future__ import annotations

from jq.ir import Op, func, ir, parse_module, run_passes

_KNOWN: dict[str, bool] = {}


def is_computed(op: Op) -> bool:
    """True if StableHLO's own passes write an op of this name as ops on integers."""
    name = op.operation.name
    if name not in _KNOWN:
        _KNOWN[name] = _opens(op)
    return _KNOWN[name]


def _opens(op: Op) -> bool:
    module = parse_module("module {}")
    arguments = [v.type for v in op.operation.operands]
    results = [v.type for v in op.operation.results]
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("main", (arguments, results))
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        copy = op.operation.clone()
        for i, value in enumerate(block.arguments):
            copy.operands[i] = value
        func.ReturnOp(list(copy.results))
    try:
        run_passes(module, "func.func(stablehlo-legalize-quant-to-math)")
    except ir.MLIRError:
        return False
    return True
