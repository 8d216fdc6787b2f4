"""Products of float activations and stored weights read the weights as they are stored.

    dot_general %x, (composite "jq.dequantize" %w.codes, %w.scale)
    ->
    call @jq_decode_dot(%x, %w.codes, %w.scale)

Without this a compiler writes the decoded weight to memory in float at every call. The kernel
wants the contracted axis last; a weight that has it elsewhere is stored again in that order, in
the same format and the same bytes a value. Fires where one contracted axis of a weight matrix
(or of a stack cut to one matrix) meets a float operand; the result differs from the `integer`
level by the order of a float32 sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.formats import Encoding, get_format
from jq.formats.ggml import GgmlFormat
from jq.ir import Program, at, dtype_name, dtype_of, ir, shape_of
from jq.ir.build import NAME, string_attr
from jq.ir.build import replace as replace_op
from jq.ir.constants import evaluate
from jq.ir.contract import match_contract
from jq.ir.encodings import write_encodings
from jq.ir.layout import moved_parts
from jq.ir.markers import DEQUANTIZE, dequantize, match
from jq.kernels import DecodeDot
from jq.ops.dot_general import Dims
from jq.passes._kernel import OPS, NoKernel, call_kernel, isa_of
from jq.passes.base import Pass, PassContext

# A stored weight and the order that its axes were brought to -> what it became.
Moved = dict[tuple[str, tuple[int, ...]], tuple[Encoding, dict[str, ir.Value]]]


@dataclass(frozen=True)
class KernelDecode(Pass):
    name = "kernel-decode"

    def run(self, program: Program, cx: PassContext) -> bool:
        isa, changed = isa_of(cx.target), False
        moved: Moved = {}
        for op in list(program.walk()) if isa else []:
            product = Product.of(op)
            if product is None or isa is None:
                continue
            try:
                cx.kernels[product.name] = _lower(program, product, isa, moved)
                cx.kernel_types[product.name] = ("f32", "f32", "f32")
                changed = True
            except NoKernel as reason:
                cx.without_kernel[product.name] = str(reason)
        if moved:
            _share(program, moved)
            program.drop_dead()
            write_encodings(program)
        return changed


@dataclass(frozen=True)
class Product:
    """A dot_general of a float value and a stored weight.

    `side` is the operand that is the weight; `tensor` the weight's name.
    """

    op: Any
    name: str
    dims: Dims
    side: int
    x: ir.Value
    encoding: Encoding
    parts: dict[str, ir.Value]
    tensor: str = field(compare=False, default="")

    @staticmethod
    def of(op: Any) -> Product | None:
        if op.operation.name == "stablehlo.dot_general":
            found = [match(v, DEQUANTIZE) for v in op.operands]
            sides = [i for i, m in enumerate(found) if m is not None]
            if len(sides) != 1 or (marker := found[sides[0]]) is None:
                return None
            side, name = sides[0], string_attr(op, NAME) or "dot"
            x, enc, parts = op.operands[1 - side], marker.encoding, marker.parts
            return Product(op, name, Dims.of(op), side, x, enc, dict(parts), marker.tensor)
        c = match_contract(op)
        if c is None or c.op_type != "dot_general":
            return None
        sides = [i for i, s in enumerate(c.sides) if isinstance(s, tuple)]
        if len(sides) != 1:
            return None
        (enc, parts), x = c.sides[sides[0]], c.sides[1 - sides[0]]
        dims = Dims.read(c.attributes["dot_dimension_numbers"])
        return Product(op, c.name, dims, sides[0], x, enc, dict(parts), c.tensors[sides[0]])


def _lower(program: Program, p: Product, isa: str, moved: Moved) -> str:
    """Replaces the product by a call; the kernel's name."""
    if p.dims.batch or len(p.dims.contract) != 1:
        raise NoKernel("the weight is not contracted along a single axis")
    if dtype_name(dtype_of(p.x)) not in ("f32", "f16", "bf16"):
        raise NoKernel(f"the activations are {dtype_of(p.x)}")
    axis = p.dims.contract[0][p.side]
    free = p.dims.free(p.side, len(p.encoding.shape))
    result = p.op.operation.results[0]
    if 0 in (*p.encoding.shape, *shape_of(result)):
        raise NoKernel("an empty product")
    with at(p.op):
        enc, parts = _contracted_last(program, p, (*free, axis), moved)
        kernel = _kernel(isa, p, enc)
        operands = [_rows(p), *(parts[name] for name in kernel.storage)]
        (value,) = call_kernel(program, kernel, operands, p.name)
        value = _result(p, value, [p.encoding.shape[a] for a in free])
        value = OPS.convert(value, dtype_of(result))
    replace_op(p.op, [value])
    return kernel.name


def _kernel(isa: str, p: Product, enc: Encoding) -> DecodeDot:
    kinds = {b for b, n in zip(enc.block[:-1], enc.shape[:-1], strict=True) if n > 1}
    if len(kinds) > 1 or max(kinds, default=0) > 1:
        raise NoKernel(f"blocks {enc.block} are not those of rows")
    block = (kinds.pop() if kinds else max(enc.block[:-1], default=1), enc.block[-1])
    rows = math.prod(shape_of(p.x)) // enc.shape[-1]
    return DecodeDot(
        isa=isa,
        m=rows,
        k=enc.shape[-1],
        n=math.prod(enc.shape[:-1]),
        format=enc.format,
        block=block,
        scheme=enc.scheme,
        scale_type=enc.scale_type,
        options=enc.options,
    )


def _contracted_last(
    program: Program, p: Product, order: tuple[int, ...], moved: Moved
) -> tuple[Encoding, dict[str, ir.Value]]:
    """The weight with its axes in `order`; the data are written anew when that moves any."""
    wanted = {k: v for k, v in p.parts.items() if k != "sum"}
    natural = list(order) == sorted(order)
    if natural or isinstance(get_format(p.encoding.format), GgmlFormat):
        if not natural and p.encoding.block[order[-1]] < 2:
            raise NoKernel("blocks do not lie along the contracted axis")
        block = tuple(p.encoding.block[a] for a in order)
        return p.encoding.with_shape(tuple(p.encoding.shape[a] for a in order), block), wanted
    arrays = {name: evaluate(program, part) for name, part in wanted.items()}
    if any(a is None for a in arrays.values()):
        raise NoKernel("the weight is cut from a stack with its contracted axis in front")
    known = {name: np.asarray(a) for name, a in arrays.items()}
    enc, new = moved_parts(p.encoding, known, order)
    key = (p.tensor, order)
    if key not in moved:
        moved[key] = enc, {k: program.add_weight(f"{p.tensor}:{k}", v) for k, v in new.items()}
        described = program.encodings.get(p.tensor)
        if described is not None:
            parts = {k: {"dtype": v.dtype.name, "shape": list(v.shape)} for k, v in new.items()}
            program.encodings[p.tensor] = {**described, "parts": parts}
    return moved[key]


def _share(program: Program, moved: Moved) -> None:
    """Whatever else reads a weight that was moved reads its new parts: one copy is stored."""
    for (tensor, order), (enc, parts) in moved.items():
        back = [int(i) for i in np.argsort(order)]
        for op in program.walk():
            marker = match(op, DEQUANTIZE)
            if marker is None or marker.tensor != tensor:
                continue
            if any(program.weight_name(v) is None for v in marker.parts.values()):
                continue  # cut from it
            with at(op):
                dtype = dtype_of(op.operation.results[0])
                value = dequantize(program, enc, parts, dtype, tensor=tensor)
                replace_op(op, [OPS.transpose(value, back)])


def _rows(p: Product) -> ir.Value:
    """The activations as f32 [M, K]."""
    rank, axis = len(shape_of(p.x)), p.dims.contract[0][1 - p.side]
    order = [*p.dims.free(1 - p.side, rank), axis]
    x = OPS.convert(p.x, np.float32)
    x = OPS.transpose(x, order) if order != sorted(order) else x
    return OPS.reshape(x, (-(-math.prod(shape_of(x)) // shape_of(x)[-1]), shape_of(x)[-1]))


def _result(p: Product, value: ir.Value, free: Sequence[int]) -> ir.Value:
    """[M, N] in the shape of the product, whose axes are those of the left operand first."""
    rank, axis = len(shape_of(p.x)), p.dims.contract[0][1 - p.side]
    rows = [n for a, n in enumerate(shape_of(p.x)) if a != axis]
    value = OPS.reshape(value, [*rows, *free])
    if p.side == 1 or not rows or not free:
        return value
    return OPS.transpose(value, [*range(rank - 1, rank - 1 + len(free)), *range(rank - 1)])
