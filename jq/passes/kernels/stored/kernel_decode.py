"""Products of float activations and stored weights read the weights as they are stored.

    dot_general %x, (composite "jq.dequantize" %w.codes, %w.scale)
    [add bias] [activation] [add residual]
    ->
    call @jq_decode_dot(%x, %w.codes, %w.scale, %bias, %residual)

Without this a compiler writes the decoded weight to memory in float at every call. The kernel
wants a matrix whose contracted axis is last; a weight that is another is stored again as one, in
the same format (`_stored_matrix`). A convolution is a product with its patches; the few weights of
a depthwise one are decoded before its kernel for floats reads them. The result
differs from the `integer` level by the order of a float32 sum, and an activation function by the
bound that its step states. Operands that are converted to bfloat16 there are rounded by the kernel
itself, on matrix tiles or in pairs.

Where rows are few and the weight's values are integers times scales, activations are split into
int8 digits, and the integer kernel for few rows multiplies each exactly (`SplitRows`, `Gemv`): it
reads the weights at the speed of memory, which decoding to float does not. The weight is packed
for that, so it must have no other reader, not grow, and not have come as it is stored."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from jq.formats import get_format
from jq.ir import OPS, Op, Program, at, dtype_name, dtype_of, ir, shape_of
from jq.ir.build import NAME, attributes_of, string_attr
from jq.ir.build import replace as replace_op
from jq.ir.contract import Contract, match_contract
from jq.ir.encodings import write_encodings
from jq.ir.markers import DEQUANTIZE, dequantize, match
from jq.ir.ops import CONVOLUTION, Contraction, Layout, contraction, groups_of
from jq.ir.ops.dims import DOT_GENERAL
from jq.ir.ops.geometry import Matrices as MatrixView
from jq.ir.ops.geometry import NotMatrices, WeightProduct
from jq.kernels import DecodeDot, SplitRows, get_isa
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._convolution import hwio, window_of
from jq.passes.kernels._kernel import KernelDecisions, NoKernel, call_kernel, isa_of, unrounded
from jq.passes.kernels._tail import Tail
from jq.passes.kernels.kernel_floats import convolution, of_halves
from jq.passes.kernels.stored._block_weight import BlockWeight
from jq.passes.kernels.stored._stored_matrix import Matrices, Stored
from jq.planning.operands import blocks_behind

SPLIT_ROWS = 8  # up to here the products of three digits are cheaper than reading the weights
SPLIT_GROUP = 4  # of codes that one instruction multiplies; with fewer, floats are as fast
DIGITS = 3
GROWTH = 1.01  # of a weight by being packed, at most
BLOCK, LARGEST_BLOCK = 32, 64  # of activations with a scale, where the weight has none, or longer


class KernelDecode(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, decided = isa_of(cx.target), KernelDecisions()
        matrices = Matrices(program)
        given = {op.name for op in cx.plan.ops if any(p.stored for p in op.operands.values())}
        # What follows a product goes with it; another product never does.
        for op in [op for op in program.walk() if StoredProduct.of(op)] if isa else []:
            product = StoredProduct.of(op)
            if product is None or isa is None:
                continue
            try:
                packs = product.name not in given and get_isa(isa).dot.group == SPLIT_GROUP
                kernel = _lower(program, product, isa, matrices, packs)
                kind = "bf16" if product.half else "f32"
                decided.kernel(kernel, product.name, types=(kind, kind, "f32"))
            except (NoKernel, NotMatrices) as reason:
                decided.none(str(reason), product.name)
        if matrices.moved:
            matrices.share()
            program.drop_dead()
            write_encodings(program)
        return decided.write(program)


@dataclass(frozen=True)
class StoredProduct:
    """A contraction, by `rule`, of a float value and a stored weight, which is operand `side`.

    `attributes` are those of the contraction. `half`: both are rounded to bfloat16 for it."""

    op: Op
    rule: Contraction
    name: str
    attributes: dict[str, ir.Attribute]
    side: int
    x: ir.Value
    stored: Stored
    half: bool = False

    @staticmethod
    def of(op: Op) -> "StoredProduct | None":
        if (rule := contraction(op.operation.name)) and len(rule.roles(op)) == 2:
            half = of_halves(op)
            values = [unrounded(v) if half else v for v in op.operands]
            found = [match(v, DEQUANTIZE) for v in values]
            sides = [i for i, m in enumerate(found) if m is not None]
            if len(sides) == 2:  # activations that were rounded to a format without integers
                sides = [i for i in sides if blocks_behind(values[i]) is None]
            if len(sides) != 1 or (marker := found[sides[0]]) is None:
                return None
            side, name = sides[0], string_attr(op, NAME) or rule.op
            stored = Stored.of(marker.encoding, marker.parts, marker.tensor)
            x = values[1 - side]
            return StoredProduct(op, rule, name, attributes_of(op), side, x, stored, half)
        c = match_contract(op)
        sides = [i for i, s in enumerate(c.sides) if isinstance(s, tuple)] if c else []
        rule = contraction(c.op_type) if c else None
        if c is None or rule is None or len(sides) != 1:
            return None
        side = sides[0]
        enc, parts = c.sides[side]
        stored = Stored.of(enc, parts, c.tensors[side])
        return StoredProduct(op, rule, c.name, c.attributes, side, c.sides[1 - side], stored)

    def view(self) -> MatrixView:
        """The product as one of matrices; `NotMatrices` where it is none."""
        shape = shape_of(self.op.results[0])
        weight = self.stored.encoding
        product = WeightProduct(self.attributes, self.side, self.x, weight, shape)
        return self.rule.matrices(product)


def _lower(program: Program, p: StoredProduct, isa: str, matrices: Matrices, packs: bool) -> str:
    """Replaces the product by a call; the kernel's name. `packs`: the weight may be packed anew."""
    if dtype_name(dtype_of(p.x)) not in ("f32", "f16", "bf16"):
        raise NoKernel(f"the activations are {dtype_of(p.x)}")
    result = p.op.results[0]
    if 0 in (*p.stored.encoding.shape, *shape_of(result)):
        raise NoKernel("an empty product")
    if p.rule.op == CONVOLUTION and groups_of(p) > 1:
        return _depthwise(program, p, isa)
    with at(p.op):
        view = p.view()
        alone = all(len(list(v.uses)) == 1 for v in p.stored.parts.values())
        if packs and alone and shape_of(view.rows)[0] <= SPLIT_ROWS and not p.half:
            with suppress(NoKernel):
                return _split(program, p, isa, view)
        if not get_format(p.stored.encoding.format).in_registers:
            raise NoKernel(f"the table of {p.stored.encoding.format} does not fit registers")
        enc, parts = matrices.get(p.stored, view.free, view.contracted)
        kernel = DecodeDot.of(isa, shape_of(view.rows)[0], enc, p.half)
        if p.half and not kernel.halved:
            raise NoKernel(f"no products of stored bfloat16 numbers of {isa}")
        operands = [view.rows, *(parts[name] for name in kernel.storage)]
        if [dtype_name(dtype_of(v)) for v in operands] != [t.element for t in kernel.operands]:
            raise NoKernel("codes that the model computes are not held as stored ones are")
    tail = Tail((), (), (p.op,))
    filters = p.rule.op == CONVOLUTION and Layout.of(p).channels_last
    in_order = filters or (p.rule.op == DOT_GENERAL and p.side == 1)
    if in_order and dtype_of(result) == np.float32:
        tail = Tail.behind(program, p.op, kernel.n)
    kernel = replace(kernel, epilogue=tail.steps)
    with at(tail.last):
        return tail.lower(program, p.name, kernel, operands, lambda value, _: view.result(value))


def _depthwise(program: Program, p: StoredProduct, isa: str) -> str:
    """A convolution in groups of single channels; the kernel's name."""
    enc, parts, tensor = p.stored.encoding, p.stored.parts, p.stored.tensor
    shapes, zeros = (shape_of(p.x), enc.shape), np.zeros(enc.shape, np.float32)
    c = Contract(p.op, p.name, CONVOLUTION, p.attributes, shapes, (), ("", ""))
    window = window_of(c)
    alone = hwio(zeros, window).shape[2:] == (1, groups_of(p))
    plain = p.side == 1 and not p.half and dtype_of(p.op.results[0]) == np.float32
    if not (alone and plain and get_isa(isa).rounds) or any(window.reversal):
        raise NoKernel("a convolution in groups is no product of matrices")
    with at(p.op):
        floats = dequantize(program, enc, parts, np.float32, tensor=tensor)
        decoded = OPS.transpose(floats, window.layout.kernel_order)
        x = OPS.convert(p.x, np.float32)
    return convolution(program, c, x, zeros, decoded, isa, "f32")


def _split(program: Program, p: StoredProduct, isa: str, view: MatrixView) -> str:
    """The product with activations in digits; the kernel's name."""
    weight = BlockWeight.of(program, p.stored.encoding, p.stored.parts, view.contracted, view.free)
    m, k = shape_of(view.rows)
    weight = weight.cut(BLOCK if weight.by_column else math.gcd(weight.block, LARGEST_BLOCK))
    kernel = weight.kernel(isa, m, True, DIGITS, ())
    stored = sum(
        program.weights[n].nbytes for n in map(program.weight_name, p.stored.parts.values()) if n
    )
    if weight.packed_bytes(kernel) > GROWTH * stored:
        raise NoKernel("the packed weight is larger than the stored one")
    split = SplitRows(isa=isa, m=m, k=k, block=kernel.block, digits=DIGITS)
    rows = call_kernel(program, split, [view.rows], f"{p.name}/split")
    operands = [*rows, *weight.operands(program, p.name, kernel)]
    (value,) = call_kernel(program, kernel, operands, p.name)
    replace_op(p.op, [OPS.convert(view.result(value), dtype_of(p.op.results[0]))])
    return kernel.name
