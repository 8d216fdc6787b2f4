"""Products of activations and a constant weight are computed by the GEMM kernel.

    composite "jq.contract" %x.codes, %x.scale, ..., %w.codes, %w.scale   (dot_general)
    [add bias] [activation] [add residual] [composite "jq.quantize"]
    ->
    call @jq_gemm(%x.codes, %w.packed, %init, ..., %bias, %residual)

Fires on int8 x int8 with per-channel or per-tensor symmetric weights. The result has the bits of
the `integer` level: the same integers, and the same float operations in the same order; an
activation function is within the bound that its step states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.formats.affine import Affine
from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.constants import evaluate
from jq.ir.contract import Contract, match_contract
from jq.kernels import Dequantize, Gemm
from jq.ops.dot_general import Dims
from jq.passes._kernel import OPS, NoKernel, call_kernel, isa_of, unsigned_view
from jq.passes._tail import Tail
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class KernelGemm(Pass):
    name = "kernel-gemm"

    def run(self, program: Program, cx: PassContext) -> bool:
        isa, changed = isa_of(cx.target), False
        contracts = [op for op in program.walk() if match_contract(op)] if isa else []
        for op in contracts:
            c = match_contract(op)  # now: an operand may have been replaced since
            if c is None or c.op_type != "dot_general" or isa is None:
                continue
            try:
                cx.kernels[c.name] = _lower(program, Product.of(program, c), isa)
                changed = True
            except NoKernel as reason:
                cx.without_kernel.setdefault(c.name, str(reason))
        return changed


@dataclass(frozen=True)
class Product:
    """A contraction as `codes [M, K] x weight [K, N]`, with everything by row or by column.

    Attributes:
        codes: the activation's codes; `order` brings its axes to rows, then contracted ones.
        weight: int8 [K, N].
        scale: f32 [N] of the weight.
        row_scale: of the activation: its value in the program (dynamic), or a number (static).
        row_zero: likewise; None when symmetric.
    """

    contract: Contract
    codes: ir.Value
    order: tuple[int, ...]
    weight: np.ndarray
    scale: np.ndarray
    row_scale: ir.Value | np.float32
    row_zero: ir.Value | int | None

    @property
    def m(self) -> int:
        return math.prod(shape_of(self.codes)) // self.weight.shape[0]

    @staticmethod
    def of(program: Program, c: Contract) -> Product:
        if any(not isinstance(side, tuple) for side in c.sides):
            raise NoKernel("one operand is float")
        (x_enc, x), (w_enc, w) = c.sides
        arrays = {name: evaluate(program, part) for name, part in w.items()}
        if any(a is None for a in arrays.values()):
            raise NoKernel("the right operand is no constant weight")
        if x_enc.format != "int8" or w_enc.format != "int8":
            raise NoKernel(f"no kernel for {x_enc.format} x {w_enc.format}")
        if w_enc.scheme == "asymmetric":
            raise NoKernel("no kernel for asymmetric weights")
        dims = Dims.read(c.attributes["dot_dimension_numbers"])
        if dims.batch:
            raise NoKernel("no kernel for a batch of weights")
        weight, scale = _matrix(w_enc, {k: np.asarray(a) for k, a in arrays.items()}, dims)
        free = dims.free(0, len(c.shapes[0]))
        order = (*free, *(a for a, _ in dims.contract))
        row_scale, row_zero = _row_parameters(program, x_enc, x)
        return Product(c, x["codes"], order, weight, scale, row_scale, row_zero)


def _matrix(
    enc: Encoding, parts: dict[str, np.ndarray], dims: Dims
) -> tuple[np.ndarray, np.ndarray]:
    """Codes as [K, N], K in the order in which the left operand is contracted, and scale [N]."""
    fmt = get_format(enc.format)
    assert isinstance(fmt, Affine)
    inner, outer = [b for _, b in dims.contract], dims.free(1, len(enc.shape))
    codes = np.asarray(fmt.codes(NUMPY, parts, enc)).transpose(inner + outer)
    k = math.prod(codes.shape[: len(inner)])
    scale = np.asarray(fmt.scale(NUMPY, parts, enc))
    blocks = math.prod(scale.shape[a] for a in inner)
    if blocks > 1:
        raise NoKernel("the weight has blocks along the contracted axis")
    wide = np.broadcast_to(scale, [1 if a in inner else n for a, n in enumerate(enc.shape)])
    return codes.reshape(k, -1), wide.transpose(inner + outer).reshape(-1)


def _row_parameters(program: Program, enc: Encoding, parts: dict[str, ir.Value]) -> tuple[Any, Any]:
    known = {k: evaluate(program, v) for k, v in parts.items() if k != "codes"}
    if all(v is not None for v in known.values()) and math.prod(enc.grid) == 1:
        zero = known.get("zero_point")
        scale = np.float32(np.asarray(known["scale"]).reshape(-1)[0])
        return scale, None if zero is None else int(zero.reshape(-1)[0])
    return parts["scale"], parts.get("zero_point")


def _lower(program: Program, p: Product, isa: str) -> str:
    """Replaces the contraction and what follows it by a call; the kernel's name."""
    c = p.contract
    k, n = p.weight.shape
    if math.prod(c.shapes[0]) == 0 or n == 0:
        raise NoKernel("an empty product")
    dynamic, by_row = isinstance(p.row_scale, ir.Value), isinstance(p.row_zero, ir.Value)
    dtype = dtype_of(c.op.results[0])
    # A narrower result is the float32 one, converted.
    tail = Tail.behind(program, c.op, n) if dtype == np.float32 else Tail((), (), (c.op,))
    steps = (Dequantize(per_row=dynamic), *tail.steps)
    kernel = Gemm(isa=isa, m=p.m, k=k, n=n, row_zero=by_row, epilogue=steps)
    kernel = replace(kernel, unsigned=kernel.swapped)
    packed = kernel.pack(p.weight, zero_point=p.row_zero if isinstance(p.row_zero, int) else 0)
    scale = p.scale if dynamic else (p.row_scale * p.scale).astype(np.float32)
    with at(tail.last):
        codes = unsigned_view(p.codes) if kernel.unsigned else p.codes
        codes = OPS.transpose(codes, p.order) if _moves(p.order) else codes
        operands = [codes, _add(program, c, "packed", packed["weights"])]
        operands.append(_add(program, c, "init", packed["init"]))
        if isinstance(p.row_zero, ir.Value):
            operands.append(_by_row(p, p.row_zero))
            operands.append(_add(program, c, "colsum", packed["colsum"]))
        operands.append(_add(program, c, "column_scale", kernel.pad_columns(scale)))
        if isinstance(p.row_scale, ir.Value):
            operands.append(_by_row(p, p.row_scale))
        operands += tail.values(program, c.name, kernel.pad_columns)
        (result,) = call_kernel(program, kernel, operands, c.name)
        value = OPS.reshape(result, tail.shape)
        tail.replace(value if tail.steps else OPS.convert(value, dtype))
    return kernel.name


def _moves(order: Sequence[int]) -> bool:
    return list(order) != sorted(order)


def _add(program: Program, c: Contract, part: str, array: np.ndarray) -> ir.Value:
    return program.add_weight(f"{c.name}:{part}", array)


def _by_row(p: Product, grid: ir.Value) -> ir.Value:
    """A grid of the activation as one value a row."""
    contracted = set(p.order[len(p.order) - _contracted(p) :])
    wide = [1 if a in contracted else n for a, n in enumerate(shape_of(p.codes))]
    value = OPS.broadcast(grid, wide, range(len(wide)))
    if _moves(p.order):
        value = OPS.transpose(value, p.order)
    return OPS.reshape(value, [p.m])


def _contracted(p: Product) -> int:
    return len(Dims.read(p.contract.attributes["dot_dimension_numbers"]).contract)
