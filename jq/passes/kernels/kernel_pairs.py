"""Products whose weights allow it are computed on bytes instead of 16-bit operands.

    %y = call @jq_gemm_196x384x64(%x, %w, %init, ...)
 ->
    %y = call @jq_pair_gemm_196x384x64(%x, %w.in_order, %source, %plan, %w.init, ...)

On processors without products of bytes in 32 bits (AVX2, AVX-512 without VNNI). The result has the
same bits; `jq/kernels/gemm/pair_order.py` says which weights can be proven. Fires where that saves
enough of the multiplications, and there are rows enough to put their codes in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, Program, at
from jq.ir.build import NAME, string_attr
from jq.ir.constants import evaluate
from jq.kernels import Gemm, PairGemm, Sequences
from jq.kernels.gemm.pair_weights import PairWeights
from jq.kernels.schedule.frame import Frame
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, described, drop_declarations, rename_kernels

WORTH = 1.0  # multiplications at most, as a share
ROWS, MANY_ROWS = 16, 128  # at least; and where the second cache does not hold the weights


@dataclass(frozen=True)
class KernelPairs(Pass):
    name = "kernel-pairs"

    def run(self, program: Program, cx: PassContext) -> bool:
        calls = [op for op in program.walk() if op.operation.name == "func.call"]
        known: dict[Any, PairWeights] = {}
        changed = [_replace(program, op, known) for op in calls]
        if any(changed):
            drop_declarations(program)
            rename_kernels(program)
        return any(changed)


def _replace(program: Program, op: Op, known: dict[Any, PairWeights]) -> bool:
    gemm = described(program, op)
    if not isinstance(gemm, Gemm) or not _fits(gemm):
        return False
    codes, packed, init, *rest = op.operation.operands
    weights, start = evaluate(program, packed), evaluate(program, init)
    if weights is None or start is None:
        return False
    if packed not in known:
        known[packed] = PairWeights(gemm.unpack(weights), gemm.target.lanes)
    pairs = known[packed]
    if pairs.multiplications > WORTH:
        return False
    kernel = PairGemm(
        isa=gemm.isa,
        m=gemm.m,
        k=gemm.k,
        n=gemm.n,
        row_zero=gemm.row_zero,
        epilogue=gemm.epilogue,
        chains=pairs.chains,
        rows=gemm.rows if isinstance(gemm.rows, Sequences | Frame) else None,
    )
    name = string_attr(op, NAME) or ""
    with at(op):
        arrays = kernel.pack(pairs, np.asarray(start).reshape(-1)[: gemm.n])
        values = [program.add_weight(f"{name}:{part}", a) for part, a in arrays.items()]
        (result,) = call_kernel(program, kernel, [codes, *values, *rest], name)
    op.operation.results[0].replace_all_uses_with(result)
    op.operation.erase()
    return True


def _fits(gemm: Gemm) -> bool:
    isa = gemm.target
    plain = gemm.batch == 1 and gemm.streams == 1 and not gemm.column_zero and not gemm.unsigned
    near = gemm.k * gemm.n <= isa.memory.second_cache
    rows = gemm.m >= (ROWS if near else MANY_ROWS)
    return bool(isa.pairs) and plain and rows and gemm.n >= isa.lanes
