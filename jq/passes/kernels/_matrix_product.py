"""A contraction as a product of a matrix of activations and a constant one."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding, affine_format
from jq.ir import OPS, Program, ir, known_parts, one_step, shape_of
from jq.ir.contract import Contract
from jq.ir.ops.dims import Dims
from jq.passes.kernels._kernel import NoKernel


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
        row_zero: likewise; 0 or None when symmetric."""

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
        row_scale, row_zero = one_step(program, x) or (x["scale"], x.get("zero_point"))
        return MatrixProduct(
            c, side, dims, x["codes"], order, weight, scale, zero, row_scale, row_zero
        )

    def result(self, rows: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        """The contraction's result of that shape: what is left of its left operand comes first."""
        if self.side == 1:
            return OPS.reshape(rows, shape)
        lead, mine = len(self.dims.batch), len(self.dims.free(0, len(shape_of(self.codes))))
        first = len(shape) - mine
        swapped = [*shape[:lead], *shape[first:], *shape[lead:first]]
        order = [*range(lead), *range(lead + mine, len(shape)), *range(lead, lead + mine)]
        return OPS.transpose(OPS.reshape(rows, swapped), order)

    def by_row(self, grid: ir.Value) -> ir.Value:
        """A grid of the activation as one value a row."""
        contracted = set(self.order[len(self.order) - len(self.dims.contract) :])
        wide = [1 if a in contracted else n for a, n in enumerate(shape_of(self.codes))]
        value = OPS.broadcast(grid, wide, range(len(wide)))
        return OPS.reshape(OPS.transpose(value, self.order), [self.batch * self.m])


def _weight(program: Program, c: Contract) -> tuple[int, dict[str, np.ndarray]]:
    """Number of the operand that is a constant weight, and its parts."""
    for side in (1, 0):
        parts = c.sides[side][1] if isinstance(c.sides[side], tuple) else {}
        if (known := known_parts(program, parts)) is not None:
            return side, known
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
