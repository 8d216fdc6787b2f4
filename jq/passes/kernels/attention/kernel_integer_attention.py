"""Attention whose products are on int8 codes is one kernel.

    %s = composite "jq.contract" %q.codes, %k.codes, ...
    %p = composite "jq.quantize" softmax(%s * scale + mask)
    %y = composite "jq.contract" %p.codes, %v.codes, ...
    [composite "jq.quantize" %y]
    ->
    call @jq_integer_attention(%q.codes, %k.codes, %v.codes, %zeros, %factors, %mask, ...)

Fires on int8 with calibrated ranges of whole tensors, otherwise where `kernel-attention` does."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jq.ir import OPS, Op, Program, at, dtype_of, ir, one_step, only_user
from jq.ir.contract import Contract, match_contract
from jq.ir.markers import QUANTIZE, Marker, match
from jq.ir.ops.dims import Dims
from jq.kernels import Dequantize, IntegerAttention, Quantize
from jq.kernels.integer_attention.description import SMALLEST_SCALE
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import NoKernel, call_kernel, isa_of
from jq.passes.kernels.attention._attention import LOWEST, Mask, Match, find_softmax, to_kernels
from jq.passes.kernels.attention._attention_view import view
from jq.passes.kernels.kernel_quantize import row_scheme, static_parameters


class KernelIntegerAttention(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa = isa_of(cx.target)
        if isa is None:
            return False
        contracts = [op for op in program.walk() if match_contract(op)]
        find, lower = partial(_match, program), partial(_lower, program, isa)
        return to_kernels(program, contracts, find, lower)


@dataclass(frozen=True)
class Found(Match):
    """`probabilities`, `result`: the quantizations after the softmax and after all."""

    first: Contract
    probabilities: Marker
    second: Contract
    result: Marker | None

    @property
    def ops(self) -> list[Any]:
        """Everything that goes, in program order."""
        last = [self.result.op] if self.result else []
        return [self.first.op, *self.between.ops, self.probabilities.op, self.last, *last]


def _match(program: Program, op: Op) -> Found | None:
    first = match_contract(op)
    if first is None or Dims.of_contract(first) is None:
        return None
    between = find_softmax(program, op.operation.results[0])
    marker = match(only_user(between.result), QUANTIZE) if between else None
    if between is None or marker is None:
        return None
    codes = marker.op.operation.results[0]
    reader = only_user(codes)
    second = match_contract(reader) if reader else None
    if second is None or any(not isinstance(s, tuple) for s in (*first.sides, *second.sides)):
        return None
    inside = [parts["codes"] == codes for _, parts in second.sides]
    if sum(inside) != 1:
        return None
    result = match(only_user(second.op.operation.results[0]), QUANTIZE)
    if result and not row_scheme(program, result):
        result = None
    names, side = (first.name, second.name), inside.index(True)
    return Found(names, between, second.op, side, first, marker, second, result)


@dataclass(frozen=True)
class _Parameters:
    """Scale and zero point of a whole tensor of int8 codes."""

    codes: ir.Value
    scale: np.float32
    zero: int

    @staticmethod
    def of(program: Program, side: Any) -> "_Parameters":
        enc, parts = side
        if enc.format != "int8":
            raise NoKernel(f"no attention kernel for {enc.format}")
        if (known := one_step(program, parts)) is None:
            raise NoKernel("attention in int8 takes one scale a tensor, known from calibration")
        return _Parameters(parts["codes"], *known)


def _lower(program: Program, isa: str, f: Found) -> str:
    left, right = (_Parameters.of(program, side) for side in f.first.sides)
    v = _Parameters.of(program, f.second.sides[1 - f.side])
    p = _Parameters.of(program, f.second.sides[f.side])
    scheme = row_scheme(program, f.probabilities)
    if p.scale < SMALLEST_SCALE:
        raise NoKernel("the scale of the probabilities is too small")
    if scheme is None or dtype_of(f.second.op.results[0]) != np.float32:
        raise NoKernel("no attention kernel for these types")
    dims = tuple(Dims.read(c.attributes["dot_dimension_numbers"]) for c in (f.first, f.second))
    best = view((dims[0], dims[1]), (left.codes, right.codes), v.codes, f.side, f.between)
    q, k = (right, left) if best.swapped else (left, right)
    stored = row_scheme(program, f.result) if f.result else None
    last = [Quantize(low=stored.low)] if stored else []
    with at(f.ops[-1]), f.second.op.location:  # the audit looks for both names
        kind, mask = best.mask(f.between.mask)
        kernel = IntegerAttention(isa=isa, **best.fields, mask=kind, epilogue=(Dequantize(), *last))
        factor = float(q.scale) * float(k.scale) * f.between.scale
        _check_fill(f.between.mask, kernel, factor)
        columns = np.full(kernel.heads * kernel.dim, v.scale * p.scale, np.float32)
        operands = [
            *(x.arranged() for x in (best.q, best.k, best.v)),
            OPS.constant(np.array([q.zero, k.zero, v.zero, p.zero], np.int32)),
            OPS.constant(np.array([factor, p.scale], np.float32)),
            *mask,
            program.add_weight(f"{f.second.name}:rescale", kernel.pad_columns(columns)),
        ]
        if f.result is not None:
            operands += map(OPS.constant, static_parameters(program, f.result) or ())
        (result,) = call_kernel(program, kernel, operands, f.first.name)
        value = best.restore(result)
    f.ops[-1].operation.results[0].replace_all_uses_with(value)
    for op in reversed(f.ops):
        op.operation.erase()
    return kernel.name


def _check_fill(mask: Mask | None, kernel: IntegerAttention, factor: float) -> None:
    """Raises `NoKernel` where a score that a mask replaces is no lowest one, or adding the lowest
    number to it gives another."""
    least = -LOWEST if mask is None or mask.fill is None else -max(mask.fill, LOWEST)
    if not kernel.spread(factor) < min(least, 2.0**100):
        raise NoKernel("the scores are too large for an attention kernel")
