"""Products of activations and a constant weight are computed by the GEMM kernel.

    composite "jq.contract" %x.codes, %x.scale, ..., %w.codes, %w.scale   (dot_general)
    [add bias] [activation] [add residual] [composite "jq.quantize"]
    ->
    call @jq_gemm(%x.codes, %w.packed, %init, ..., %bias, %residual)

Fires on int8 x int8 with per-channel or per-tensor weights, one or one for each index of a batch.
The result has the bits of the `integer` level: the same integers, and the same float operations in
the same order; an activation function is within the bound that its step states."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jq.formats.requantize import Rescaling
from jq.ir import OPS, Program, at, dtype_of, ir, shape_of
from jq.ir.build import replace as replace_op
from jq.ir.contract import Contract, match_contract
from jq.ir.decisions import facts_of
from jq.ir.ops.dims import Dims
from jq.kernels import Batch, Dequantize, Gemm, JoinDigits, Streams, get_isa
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._digits import digits, in_digits, is_small, upper_sums
from jq.passes.kernels._integer import IntegerContraction, contractions, match_contraction
from jq.passes.kernels._kernel import KernelDecisions, NoKernel, call_kernel, isa_of, unsigned_view
from jq.passes.kernels._matrix_product import MatrixProduct
from jq.passes.kernels._tail import Tail
from jq.passes.rewrite import erase_dead

# Weights of a row or two that are read from memory: bytes from which on, and columns at least.
LARGE, STREAMED, STREAMS = 1 << 20, 256, 4


class KernelGemm(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, decided = isa_of(cx.target), KernelDecisions()
        known = facts_of(program, "no_kernel")
        for op in contractions(program) if isa else ():
            integers = match_contraction(op)
            c = integers.contract if integers else match_contract(op)
            if c is None or Dims.of_contract(c) is None or isa is None:
                continue
            try:
                pair = None if integers else digits(c)
                product = MatrixProduct.of(program, pair[1] if pair else c)
                if integers:
                    rescaling = cx.target.device.rescaling
                    kernel = _lower_integers(program, product, integers, isa, rescaling)
                else:
                    upper = MatrixProduct.of(program, pair[0]) if pair else None
                    kernel = _lower(program, product, isa, upper)
                decided.kernel(kernel, c.name, **({"types": ("i8", "i8", "i32")} if pair else {}))
            except NoKernel as reason:
                if c.name not in known:  # why it has none of its own says more
                    decided.none(str(reason), c.name)
        erase_dead(program)
        return decided.write(program)


def _lower(program: Program, p: MatrixProduct, isa: str, upper: MatrixProduct | None) -> str:
    """Replaces the contraction and what follows it by a call; the kernel's name. `upper`: the
    product of the upper digits, where `p` is one of the lower."""
    c = p.contract
    k, n = p.weight.shape[-2:]
    if 0 in (*c.shapes[0], *c.shapes[1]):
        raise NoKernel("an empty product")
    dynamic, by_row = isinstance(p.row_scale, ir.Value), isinstance(p.row_zero, ir.Value)
    whole = dtype_of(c.op.results[0]) == np.float32 and p.batch == 1 and p.side == 1
    unsigned = get_isa(isa).dot.lhs_unsigned and p.zero is None
    tail = Tail.behind(program, c.op, n, unsigned) if whole else Tail((), (), (c.op,))
    small = upper and is_small(p.weight, None if p.zero is None else p.zero[..., None, :])
    first = Dequantize(per_row=dynamic)
    joined = JoinDigits(per_row=dynamic, small=bool(small)) if upper else first
    kernel = Gemm(
        isa=isa,
        m=p.m,
        k=k,
        n=n,
        rows=Batch(p.batch) if p.batch > 1 else None,
        row_zero=by_row,
        column_zero=p.zero is not None,
        epilogue=(joined, *tail.steps),
    )
    if p.m <= 2 and k * n >= LARGE and n >= STREAMED and get_isa(isa).dot.group == 4:
        kernel = replace(kernel, cut=Streams(STREAMS))
    kernel = replace(kernel, unsigned=kernel.swapped and p.zero is None)
    both = in_digits(replace(kernel, epilogue=(first, *tail.steps))) if small else None
    kernel = both or kernel
    scale = p.scale if dynamic else (p.row_scale * p.scale).astype(np.float32)
    with at(tail.last):
        one = replace(upper, contract=c) if both and upper else p
        operands = _operands(program, one, kernel, [scale])
        if both:
            operands.insert(1, OPS.transpose(unsigned_view(p.codes), p.order))
        if isinstance(p.row_scale, ir.Value):
            operands.append(p.by_row(p.row_scale))
        if upper is not None and not both:
            sums = replace(kernel, row_zero=False, epilogue=())
            given = _operands(program, upper, sums, [])
            operands += upper_sums(program, sums, given, operands[1], upper.contract.name)
        return tail.lower(program, c.name, kernel, operands, p.result)


def _lower_integers(
    program: Program, p: MatrixProduct, integers: IntegerContraction, isa: str, rescaling: Rescaling
) -> str:
    """Replaces a contraction of an integer program by a call; the kernel's name."""
    op, shape = p.contract.op, shape_of(p.contract.op.operation.results[0])
    if 0 in (*p.contract.shapes[0], *p.contract.shapes[1]):
        raise NoKernel("an empty product")
    dims = p.dims if p.side else p.dims.flipped()
    axes = dims.result_axes(p.side, *p.contract.shapes)
    steps, bias, columns = integers.rescale(rescaling, sorted(axes.values()))
    k, n = p.weight.shape[-2:]
    rows = Batch(p.batch) if p.batch > 1 else None
    zeros = p.zero is not None
    kernel = Gemm(isa=isa, m=p.m, k=k, n=n, rows=rows, column_zero=zeros, epilogue=steps)
    if p.batch > 1:
        bias, columns = bias.reshape(p.batch, n), [c.reshape(p.batch, n) for c in columns]
    with at(op):
        operands = _operands(program, p, kernel, columns, bias)
        zero_point = np.full(p.batch, integers.step.out.zero_point, np.int32)
        operands.append(OPS.constant(zero_point))
        (result,) = call_kernel(program, kernel, operands, p.contract.name)
        replace_op(op, [p.result(result, shape)])
    return kernel.name


def _operands(
    program: Program,
    p: MatrixProduct,
    kernel: Gemm,
    columns: Sequence[np.ndarray],
    bias: np.ndarray | None = None,
) -> list[ir.Value]:
    """The kernel's operands up to those by column of its first step."""
    c = p.contract
    zero_point = p.row_zero if isinstance(p.row_zero, int) else 0
    packed = kernel.pack(p.weight, bias, zero_point, p.zero)
    codes = unsigned_view(p.codes) if kernel.unsigned else p.codes
    operands = [OPS.transpose(codes, p.order), _add(program, c, "packed", packed["weights"])]
    operands.append(_add(program, c, "init", packed["init"]))
    if isinstance(p.row_zero, ir.Value):
        operands += [p.by_row(p.row_zero), _add(program, c, "colsum", packed["colsum"])]
    if p.zero is not None:
        operands.append(_add(program, c, "column_zero", packed["column_zero"]))
    for i, column in enumerate(columns):
        part = f"column_{i}" if len(columns) > 1 else "column_scale"
        operands.append(_add(program, c, part, kernel.pad_columns(column)))
    return operands


def _add(program: Program, c: Contract, part: str, array: np.ndarray) -> ir.Value:
    return program.add_weight(f"{c.name}:{part}", array)
