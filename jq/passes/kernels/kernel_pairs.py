"""Products whose weights allow it are computed on bytes instead of 16-bit operands.

    %y = call @jq_gemm_196x384x64(%x, %w, %init, ...)
 ->
    %y = call @jq_pair_gemm_196x384x64(%x, %w.in_order, %source, %plan, %w.init, ...)

and convolutions (`jq_pair_convolution`) alike. On processors without products of bytes in 32 bits
(AVX2, AVX-512 without VNNI). The result has the same bits; `jq/kernels/gemm/pair_order.py` says
which weights can be proven. Fires where that saves enough of the multiplications, and there are
rows enough to put their codes in order."""

import math
from dataclasses import fields
from typing import Any

import numpy as np

from jq.ir import NAME, Op, Program, at, evaluate, string_attr
from jq.kernels import Batch, Convolution, Gemm, PairConvolution, PairGemm
from jq.kernels.gemm.pair_weights import PairWeights
from jq.kernels.tensor import Array
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_instead, described, renamed

WORTH = 1.0  # of the work with 16-bit operands, at most
ROWS = 16  # at least
# So many times the lanes of a vector, at least, where the second cache does not hold the weights:
# they are longer by a third, and come from memory; wider vectors leave less time for that.
MANY_ROWS = 6


class KernelPairs(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        calls = [op for op in program.walk() if op.operation.name == "func.call"]
        known: dict[Any, PairWeights] = {}
        changed = [_replace(program, op, known) for op in calls]
        return renamed(program, any(changed))


def _replace(program: Program, op: Op, known: dict[Any, PairWeights]) -> bool:
    product = described(program, op)
    if not isinstance(product, Gemm | Convolution) or not _fits(product):
        return False
    codes, packed, init, *rest = op.operands
    weights, start = evaluate(program, packed), evaluate(program, init)
    if weights is None or start is None:
        return False
    if packed not in known:
        known[packed] = _in_order(product, weights)
    pairs = known[packed]
    if pairs.work > WORTH:
        return False
    kernel = _by_pairs(product, pairs.chains)
    name = string_attr(op, NAME) or ""
    with at(op):
        arrays = kernel.pack(pairs, np.asarray(start).reshape(-1))
        values = [program.add_weight(f"{name}:{part}", a) for part, a in arrays.items()]
    call_instead(program, kernel, op, [codes, *values, *rest])
    return True


def _fits(product: Gemm | Convolution) -> bool:
    isa, rows = product.target, product.shape[0]
    plain = not product.column_zero and not product.unsigned
    if isinstance(product, Gemm):
        plain = plain and product.streams == 1 and not isinstance(product.rows, Batch)
    near = math.prod(product.operands[1].shape) <= isa.memory.second_cache
    many = rows >= (ROWS if near else MANY_ROWS * isa.lanes)
    return bool(isa.pairs) and plain and many and product.span >= isa.lanes


def _in_order(product: Gemm | Convolution, packed: Array) -> PairWeights:
    weight = product.unpack(packed)
    if isinstance(product, Gemm):
        return PairWeights.of_matrix(weight, product.target.lanes)
    runs = (math.prod(product.runs), product.run, product.groups, product.span)
    return PairWeights(weight.reshape(runs), product.target.lanes)


def _by_pairs(product: Gemm | Convolution, chains: int) -> PairGemm | PairConvolution:
    """The same product, of pairs."""
    kind = PairGemm if isinstance(product, Gemm) else PairConvolution
    given = {f.name: getattr(product, f.name) for f in fields(kind) if f.name != "chains"}
    return kind(chains=chains, **given)
