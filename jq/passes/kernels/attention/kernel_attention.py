"""Float attention is computed by one kernel: the scores never leave the processor's caches.

    %s = dot_general %q, %k                      // heads as batch dimensions
    %p = softmax(%s * scale + mask)              // recognised by what it computes
    %y = dot_general %p, %v
    ->
    call @jq_attention(%q, %k, %v, %mask)

Fires on products with batch dimensions, where queries may share keys and values, a mask that is the
same for every head, and softmax over the keys. Narrower floats are computed in float32. A program
in which nothing is quantized is left as it is: it is what others are compared with."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from jq.ir import NAME, OPS, Op, Program, at, dtype_of, only_user, string_attr
from jq.ir.contract import match_contract
from jq.ir.markers import match
from jq.ir.ops.dims import Dims
from jq.kernels import Attention, get_isa
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, isa_of, unrounded
from jq.passes.kernels.attention._attention import Match, find_softmax, to_kernels
from jq.passes.kernels.attention._attention_view import view


class KernelAttention(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa = isa_of(cx.target)
        ops = list(program.walk())
        # Codes that a model has brought: markers, or the kernels that are in their place.
        brought = any(o.operation.name == "func.call" or match(o) or match_contract(o) for o in ops)
        if isa is None or not (cx.settings.op_types or brought):
            return False
        dots = list(filter(Dims.match, ops))
        lower = partial(_lower, program, isa, cx.settings.attention_precision)
        return to_kernels(program, dots, partial(_match, program), lower)


@dataclass(frozen=True)
class Found(Match):
    first: Op


def _match(program: Program, first: Op) -> Found | None:
    between = find_softmax(program, first.operation.results[0])
    second = only_user(between.result) if between else None
    if between is None or second is None or Dims.match(second) is None:
        return None
    left, right = second.operation.operands
    if left == right:
        return None
    names = [string_attr(op, NAME) or "attention" for op in (first, second)]
    side = 0 if left == between.result else 1
    return Found((names[0], names[1]), between, second, side, first)


def _lower(program: Program, isa: str, precision: str, f: Found) -> str:
    left, right = f.first.operation.operands
    values = f.last.operation.operands[1 - f.side]
    dims = Dims.of(f.first), Dims.of(f.last)
    best = view(dims, (left, right), values, f.side, f.between)
    result = f.last.operation.results[0]
    with at(f.last):
        kind, mask = best.mask(f.between.mask)
        halves = all(dtype_of(v).name == "bfloat16" for v in (left, right, values))
        bf16 = (halves or precision == "bfloat16") and get_isa(isa).multiplies_bf16
        kernel = Attention(
            isa=isa,
            **best.fields,
            scale=f.between.scale,
            mask=kind,
            precision="bf16" if bf16 else "f32",
            fill=f.between.mask.fill if f.between.mask else None,
        )
        given = [best.q, best.k, best.v]
        if bf16:  # the kernel rounds them itself
            given = [replace(x, value=unrounded(x.value)) for x in given]
        operands = [OPS.convert(x.arranged(), np.float32) for x in given]
        (y,) = call_kernel(program, kernel, [*operands, *mask], f.names[0])
        value = OPS.convert(best.restore(y), dtype_of(result))
    result.replace_all_uses_with(value)
    for op in (f.last, *reversed(f.between.ops), f.first):
        op.operation.erase()
    return kernel.name
