"""Codes are stored in the view in which their readers take them.

    %q = call @jq_normalize(%x)               %q = call @jq_normalize'(%x)      // stores q + 128
    %r = reshape %q                      ->   %r = reshape %q
    %u = xor %r, -128                         call @jq_gemm(%r, ...)
    call @jq_gemm(%u, ...)

Passes before flip codes where a kernel reads its operand as unsigned (`unsigned_view`). A flip
moves to where the codes are made, through ops that only move data, when every reader has it."""

from dataclasses import replace
from typing import Any

import numpy as np

from jq.ir import Op, Program, at, dtype_of, evaluate, func, ir
from jq.ir.build import NAME, like, string_attr
from jq.ir.build import replace as replace_op
from jq.kernels import Kernel, RowQuantization
from jq.kernels.epilogue.code_steps import ToCodes
from jq.passes.base import Pass, PassContext
from jq.passes.kernels import _kernel

# Ops whose result holds the codes of their operands, moved.
_MOVE = {
    f"stablehlo.{name}"
    for name in ("reshape", "transpose", "slice", "broadcast_in_dim", "concatenate", "pad")
}


class KernelViews(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        declared, changed = _kernel.declarations(program), False
        for op in reversed(list(program.walk())):  # readers first
            flips = _only_flips(program, op)
            made = _flipped(program, op, declared) if flips else None
            if made is None:
                continue
            for flip in flips:
                flip.operation.results[0].replace_all_uses_with(made[_codes(op)])
                flip.operation.erase()
            replace_op(op, made)
            changed = True
        return _kernel.renamed(program, changed)


def _codes(op: Op) -> int:
    """Number of the op's result that holds codes: kernels give at most one."""
    return next(i for i, v in enumerate(op.operation.results) if dtype_of(v) == np.int8)


def _only_flips(program: Program, op: Op) -> list[Any]:
    """The readers of an op's codes, when each of them is a flip."""
    codes = [v for v in op.operation.results if isinstance(v.type, ir.RankedTensorType)]
    codes = [v for v in codes if dtype_of(v) == np.int8]
    if len(codes) != 1:
        return []
    uses = list(codes[0].uses)
    flips = all(use.operand_number == 0 and _is_flip(program, use.owner) for use in uses)
    return [use.owner for use in uses] if flips else []


def _is_flip(program: Program, op: Op) -> bool:
    found = op.operation.name == "stablehlo.xor" and dtype_of(op.operation.results[0]) == np.int8
    mask = evaluate(program, op.operation.operands[1]) if found else None
    return mask is not None and bool((mask == _kernel.FLIP).all())


def _flipped(program: Program, op: Op, declared: dict[str, func.FuncOp]) -> list[ir.Value] | None:
    """The op again with its codes in the other view; None when that cannot be had."""
    if op.operation.name in _MOVE:
        with at(op):
            operands = [_kernel.unsigned_view(v) for v in op.operation.operands]
            result = op.operation.results[0]
            shape = tuple(ir.RankedTensorType(result.type).shape)
            return [like(op, operands, shape, np.int8)]
    kernel = _unsigned(_kernel.called(declared, op))
    if kernel is None:
        return None
    with at(op):
        name = string_attr(op, NAME) or ""
        return _kernel.call_kernel(program, kernel, list(op.operation.operands), name)


def _unsigned(kernel: Any) -> Kernel | None:
    """The kernel that stores the other view of its codes; None when it has no choice."""
    scheme, steps = getattr(kernel, "scheme", None), getattr(kernel, "epilogue", ())
    if isinstance(scheme, RowQuantization):
        return replace(kernel, scheme=replace(scheme, unsigned=not scheme.unsigned))
    if steps and isinstance(steps[-1], ToCodes):
        last = replace(steps[-1], unsigned=not steps[-1].unsigned)
        return replace(kernel, epilogue=(*steps[:-1], last))
    return None
