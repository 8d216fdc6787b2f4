"""Products of activations and a constant weight are computed by the GEMM kernel.

    composite "jq.contract" %x.codes, %x.scale, ..., %w.codes, %w.scale   (dot_general)
    [add bias] [activation] [add residual] [composite "jq.quantize"]
    ->
    call @jq_gemm(%x.codes, %w.packed, %init, ..., %bias, %residual)

Fires on int8 x int8 with per-channel or per-tensor weights, one or one for each index of a batch.
The result has the bits of the `integer` level: the same integers, and the same float operations in
the same order; an activation function is within the bound that its step states."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding
from jq.formats.affine import affine_format
from jq.formats.requantize import Rescaling
from jq.ir import OPS, Program, at, dtype_of, evaluate, ir, shape_of
from jq.ir.build import replace as replace_op
from jq.ir.contract import Contract, match_contract
from jq.ir.decisions import facts_of
from jq.ir.ops.dims import Dims
from jq.kernels import Batch, Dequantize, Gemm, JoinDigits, Streams, get_isa
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._digits import digits, in_digits, is_small, upper_sums
from jq.passes.kernels._integer import IntegerContraction, contractions, match_contraction
from jq.passes.kernels._kernel import KernelDecisions, NoKernel, call_kernel, isa_of, unsigned_view
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


@dataclass(frozen=True)
class MatrixProduct:
    """A contraction as `codes [M, K] x weight [K, N]`, with everything by row or by column.

    With a batch everything has another axis in front.

    Attributes:
        side: the operand that is the weight; `dims` speak of the activation first.
        codes: the activation's codes; `order` brings its axes to (a batch,) rows, contracted ones.
        weight: int8 [K, N].
        scale: f32 [N] of the weight.
        zero: i32 [N], its zero points; None when symmetric.
        row_scale: of the activation: its value in the program (dynamic), or a number (static).
        row_zero: likewise; None when symmetric.
    """

    contract: Contract
    side: int
    dims: Dims
    codes: ir.Value
    order: tuple[int, ...]
    weight: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None
    row_scale: ir.Value | np.float32
    row_zero: ir.Value | int | None

    @property
    def batch(self) -> int:
        return len(self.weight) if self.weight.ndim == 3 else 1

    @property
    def m(self) -> int:
        return math.prod(shape_of(self.codes)) // self.weight.shape[-2] // self.batch

    @staticmethod
    def of(program: Program, c: Contract) -> "MatrixProduct":
        if any(not isinstance(side, tuple) for side in c.sides):
            raise NoKernel("one operand is float")
        side, known = _weight(program, c)
        (x_enc, x), (w_enc, _) = c.sides[1 - side], c.sides[side]
        if x_enc.format != "int8" or w_enc.format != "int8":
            raise NoKernel(f"no kernel for {x_enc.format} x {w_enc.format}")
        dims = Dims.read(c.attributes["dot_dimension_numbers"])
        dims = dims if side == 1 else dims.flipped()
        if any(x_enc.grid[a] > 1 for a, _ in dims.contract):
            raise NoKernel("the activation has blocks along the contracted axis")
        weight, scale, zero = _matrix(w_enc, known, dims)
        free = dims.free(0, len(c.shapes[1 - side]))
        order = (*(a for a, _ in dims.batch), *free, *(a for a, _ in dims.contract))
        row_scale, row_zero = _row_parameters(program, x_enc, x)
        return MatrixProduct(
            c, side, dims, x["codes"], order, weight, scale, zero, row_scale, row_zero
        )


def _weight(program: Program, c: Contract) -> tuple[int, dict[str, np.ndarray]]:
    """Number of the operand that is a constant weight, and its parts."""
    for side in (1, 0):
        parts = c.sides[side][1] if isinstance(c.sides[side], tuple) else {}
        arrays = {name: evaluate(program, part) for name, part in parts.items()}
        if all(a is not None for a in arrays.values()):
            return side, {name: np.asarray(a) for name, a in arrays.items()}
    raise NoKernel("no operand is a constant weight")


def _matrix(
    enc: Encoding, parts: dict[str, np.ndarray], dims: Dims
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Codes as [K, N], K in the order in which the left operand is contracted, scale [N], zero
    points [N]; with a batch in front of all where there is one."""
    fmt = affine_format(enc.format)
    inner, outer = [b for _, b in dims.contract], dims.free(1, len(enc.shape))
    lead = [b for _, b in dims.batch]
    codes = np.asarray(fmt.codes(NUMPY, parts, enc))
    k, batch = (math.prod(enc.shape[a] for a in axes) for axes in (inner, lead))
    front = [batch] if batch > 1 else []
    scale = np.asarray(fmt.scale(NUMPY, parts, enc))
    blocks = math.prod(scale.shape[a] for a in inner)
    if blocks > 1:
        raise NoKernel("the weight has blocks along the contracted axis")

    def by_column(grid: Any) -> np.ndarray:
        wide = [1 if a in inner else n for a, n in enumerate(enc.shape)]
        return np.broadcast_to(grid, wide).transpose(lead + inner + outer).reshape(*front, -1)

    zero = fmt.zero_point(NUMPY, parts, enc)
    matrix = codes.transpose(lead + inner + outer).reshape(*front, k, -1)
    return matrix, by_column(scale), None if zero is None else by_column(np.asarray(zero))


def _row_parameters(program: Program, enc: Encoding, parts: dict[str, ir.Value]) -> tuple[Any, Any]:
    known = {k: evaluate(program, v) for k, v in parts.items() if k != "codes"}
    if all(v is not None for v in known.values()) and math.prod(enc.grid) == 1:
        zero = known.get("zero_point")
        scale = np.float32(np.asarray(known["scale"]).reshape(-1)[0])
        return scale, None if zero is None else int(zero.reshape(-1)[0])
    return parts["scale"], parts.get("zero_point")


def _lower(program: Program, p: MatrixProduct, isa: str, upper: MatrixProduct | None) -> str:
    """Replaces the contraction and what follows it by a call; the kernel's name. `upper`: the
    product of the upper digits, where `p` is one of the lower."""
    c = p.contract
    k, n = p.weight.shape[-2:]
    if 0 in (*c.shapes[0], *c.shapes[1]):
        raise NoKernel("an empty product")
    dynamic, by_row = isinstance(p.row_scale, ir.Value), isinstance(p.row_zero, ir.Value)
    dtype = dtype_of(c.op.results[0])
    # A narrower result is the float32 one, converted.
    whole = dtype == np.float32 and p.batch == 1 and p.side == 1
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
            operands.append(_by_row(p, p.row_scale))
        if upper is not None and not both:
            sums = replace(kernel, row_zero=False, epilogue=())
            given = _operands(program, upper, sums, [])
            operands += upper_sums(program, sums, given, operands[1], upper.contract.name)
        operands += tail.values(program, c.name, kernel.pad_columns)
        (result,) = call_kernel(program, kernel, operands, c.name)
        value = _result(p, result, tail.shape)
        tail.replace(value if tail.steps else OPS.convert(value, dtype))
    return kernel.name


def _lower_integers(
    program: Program, p: MatrixProduct, integers: IntegerContraction, isa: str, rescaling: Rescaling
) -> str:
    """Replaces a contraction of an integer program by a call; the kernel's name."""
    op, shape = p.contract.op, shape_of(p.contract.op.operation.results[0])
    if 0 in (*p.contract.shapes[0], *p.contract.shapes[1]):
        raise NoKernel("an empty product")
    axes = p.dims.result_axes(p.side, *p.contract.shapes)
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
        replace_op(op, [_result(p, result, shape)])
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
        operands.append(_by_row(p, p.row_zero))
        operands.append(_add(program, c, "colsum", packed["colsum"]))
    if p.zero is not None:
        operands.append(_add(program, c, "column_zero", packed["column_zero"]))
    for i, column in enumerate(columns):
        part = f"column_{i}" if len(columns) > 1 else "column_scale"
        operands.append(_add(program, c, part, kernel.pad_columns(column)))
    return operands


def _result(p: MatrixProduct, rows: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """The contraction's result of that shape: what is left of its left operand comes first."""
    if p.side == 1:
        return OPS.reshape(rows, shape)
    lead, mine = len(p.dims.batch), len(p.dims.free(0, len(shape_of(p.codes))))
    first = len(shape) - mine
    swapped = [*shape[:lead], *shape[first:], *shape[lead:first]]
    order = [*range(lead), *range(lead + mine, len(shape)), *range(lead, lead + mine)]
    return OPS.transpose(OPS.reshape(rows, swapped), order)


def _add(program: Program, c: Contract, part: str, array: np.ndarray) -> ir.Value:
    return program.add_weight(f"{c.name}:{part}", array)


def _by_row(p: MatrixProduct, grid: ir.Value) -> ir.Value:
    """A grid of the activation as one value a row."""
    contracted = set(p.order[len(p.order) - len(p.dims.contract) :])
    wide = [1 if a in contracted else n for a, n in enumerate(shape_of(p.codes))]
    value = OPS.broadcast(grid, wide, range(len(wide)))
    return OPS.reshape(OPS.transpose(value, p.order), [p.batch * p.m])
