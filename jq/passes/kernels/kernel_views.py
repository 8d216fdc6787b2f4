"""Codes are stored in the view in which their readers take them.

    %q = call @jq_normalize(%x)               %q = call @jq_normalize'(%x)      // stores q + 128
    %r = reshape %q                      ->   %r = reshape %q
    %u = xor %r, -128                         call @jq_gemm(%r, ...)
    call @jq_gemm(%u, ...)

Passes before flip codes where a kernel reads its operand as unsigned (`unsigned_view`). A flip
moves to where the codes are made, through ops that only move data, when every reader has it, or
widens the codes: integer arithmetic flips them back as it reads them, so that they are stored once
(a sum that the next product reads, and the next sum)."""

from dataclasses import replace
from typing import Any

import numpy as np

from jq.ir import NAME, Op, Program, at, dtype_of, evaluate, func, ir, like, short_kind, string_attr
from jq.ir.build import replace as replace_op
from jq.ir.ops.integer_step import INTEGER
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
            codes = _codes(op)
            flips, widened = _flips(program, codes) if codes else ([], [])
            made = _flipped(program, op, declared) if flips else None
            if codes is None or not (made or widened):
                continue
            with at(op, after=True):
                flipped = made[codes.result_number] if made else _kernel.unsigned_view(codes)
            for flip in flips:
                flip.operation.results[0].replace_all_uses_with(flipped)
                flip.operation.erase()
            for use in widened:
                operands, i = use.owner.operation.operands, use.operand_number
                with at(use.owner):
                    operands[i] = _kernel.unsigned_view(operands[i])
            if made:
                replace_op(op, made)
            else:
                codes.replace_all_uses_except(flipped, [flipped.owner.operation])
            changed = True
        return _kernel.renamed(program, changed)


def _codes(op: Op) -> ir.Value | None:
    """The op's result that holds codes: kernels give at most one."""
    values = [v for v in op.operation.results if isinstance(v.type, ir.RankedTensorType)]
    codes = [v for v in values if dtype_of(v) == np.int8]
    return codes[0] if len(codes) == 1 else None


def _flips(program: Program, codes: ir.Value) -> tuple[list[Any], list[Any]]:
    """The flips that read codes, and what integer arithmetic reads them as, also in another shape.
    Nothing where there are other readers."""
    flips, widened, todo = [], [], [codes]
    while todo:
        for use in (value := todo.pop()).uses:
            op, kind = use.owner, short_kind(use.owner)
            if value == codes == op.operands[0] and _is_flip(program, op):
                flips.append(op)
            elif kind == "reshape":
                todo.append(op.results[0])
            elif kind == INTEGER or (kind == "convert" and dtype_of(op.results[0]).kind == "i"):
                widened.append(use)
            else:
                return [], []
    return flips, widened if flips else []


def _is_flip(program: Program, op: Op) -> bool:
    found = op.operation.name == "stablehlo.xor" and dtype_of(op.operation.results[0]) == np.int8
    mask = evaluate(program, op.operation.operands[1]) if found else None
    return mask is not None and bool((mask == _kernel.FLIP).all())


def _flipped(program: Program, op: Op, declared: dict[str, func.FuncOp]) -> list[ir.Value] | None:
    """The op again with its codes in the other view; None when that cannot be had."""
    if op.operation.name in _MOVE:
        with at(op):
            operands = [_kernel.unsigned_view(v) for v in op.operation.operands]
            shape = tuple(ir.RankedTensorType(op.operation.results[0].type).shape)
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
