"""Products of float activations and stored weights, decoded in registers.

    y[m, n] = sum_k x[m, k] * decode(weight)[n, k]

The weight is read as its format stores it, [N, K] with K last; the decode is the format's own
(`Format.decode`), emitted on vectors. No float weight exists outside of registers and, for more
than a few rows, of a panel that stays in the core's cache:

    few rows:   for step of K: w = decode(4 columns); acc[rows][4] += x[rows, step] * w
    many rows:  panel[K][columns] = decode(columns of a workgroup)
                the register tiles of a `Gemm`

What follows few rows is a second dispatch over rows, in whole vectors. Where a panel is too long
(`panelled`), the whole weight is decoded to memory first; so it is with `precision="bf16"`, where
the processor multiplies that, for a `Gemm` of rows rounded to bf16.

2 M N K operations. Sums are in f32, `lanes` partial ones along K: the error is below
(K / lanes + log2(lanes) + 1) 2^-24 of the sum of magnitudes, plus that of the decode; of a `Gemm`,
below (K + 1) 2^-24."""

from dataclasses import replace
from functools import cached_property
from typing import Any

from jq.base.errors import InternalError
from jq.formats import Encoding, get_format
from jq.kernels.epilogue.step import Step, check, operand_types
from jq.kernels.gemm.description import Gemm, RegisterTile
from jq.kernels.kernel import MatrixProduct
from jq.kernels.machine.tiling import even_rows
from jq.kernels.tensor import TensorType, element_name

STEP, STEP_OF_BLOCKS = 128, 32  # values decoded at once, about; where blocks are stored apart
HALVED_ROWS = 16  # from here on weights are decoded to bf16 for all rows
DIRECT_ROWS = 4  # up to here weights are decoded and used at once
COLUMNS = 4  # of a workgroup then
PANEL_BYTES = 192 * 1024  # decoded weights of a workgroup with many rows


class DecodeDot(MatrixProduct):
    """f32 [M, K] x stored [N, K] -> [M, N] in f32, or as the epilogue ends.

    Operands, in order: x f32 [M, K]; the parts of the weight, as `Format.storage` lists them; what
    the epilogue's steps name ([N] operands have N' elements).

    Attributes:
        format, block, scheme, scale_type, options: the weight's encoding; `block` has an entry for
            N (0 or 1) and for K.
        epilogue: steps from f32.
        precision: `bf16`, where operands are rounded if `halved`; or `f32`."""

    format: str
    block: tuple[int, ...]
    scheme: str = "symmetric"
    scale_type: str = "float32"
    options: tuple[tuple[str, str], ...] = ()
    epilogue: tuple[Step, ...] = ()
    precision: str = "f32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block[0] > 1:
            raise InternalError(f"blocks {self.block} cross rows of the weight")

    @staticmethod
    def of(isa: str, rows: int, weight: Encoding, half: bool) -> "DecodeDot":
        """The product of f32 rows, rounded to bf16 if `half`, and a weight [N, K]."""
        (n, k), precision = weight.shape, "bf16" if half else "f32"
        own = ("format", "block", "scheme", "scale_type", "options")
        told = {name: getattr(weight, name) for name in own}
        return DecodeDot(isa=isa, m=rows, k=k, n=n, precision=precision, **told)

    @property
    def label(self) -> str:
        return f"{super().label}_{self.format}"

    @property
    def encoding(self) -> Encoding:
        return self._of((self.n, self.k), self.block)

    def _of(self, shape: tuple[int, ...], block: tuple[int, ...]) -> Encoding:
        return Encoding(self.format, shape, block, self.scheme, self.scale_type, self.options)

    def piece(self, length: int) -> Encoding:
        """The encoding of `length` values of a row, from a multiple of `step`."""
        return self._of((1, length), (self.block[0], min(self.block[1], length)))

    @cached_property
    def step(self) -> int:
        """Values decoded at once: whole blocks whose parts are whole bytes."""
        block = self.block[1]
        if block == 0:
            return min(64, self.k)
        step, flat = block, all(len(shape) == 2 for shape, _ in self.storage.values())
        while step < (STEP if flat else STEP_OF_BLOCKS) or not self._divides(step):
            step += block
        return step if step <= self.k else self.k

    def _divides(self, step: int) -> bool:
        """True if eight steps take eight times the room of one, in parts with an entry a block:
        eight fields fill whole bytes."""
        one, eight = (
            get_format(self.format).storage(self._of((1, n), (self.block[0], self.block[1])))
            for n in (step, 8 * step)
        )
        return all(eight[p][0][1] == 8 * one[p][0][1] for p in one if p != "tensor_scale")

    @cached_property
    def storage(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        return dict(get_format(self.format).storage(self.encoding))

    @cached_property
    def stored_step(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        return dict(get_format(self.format).storage(self.piece(self.step)))

    @property
    def operands(self) -> tuple[TensorType, ...]:
        parts = [TensorType(shape, element_name(d)) for shape, d in self.storage.values()]
        steps = operand_types(self.epilogue, (self.m, self.n), self.columns)
        return (TensorType((self.m, self.k), "f32"), *parts, *steps)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((self.m, self.n), check(self.epilogue, "f32")),)

    @cached_property
    def gemm(self) -> Gemm:
        """The product with the decoded weight; of f32 in panels no wider than their room."""
        if self.halved:
            return self._gemm("bf16")
        gemm, lanes = self._gemm("f32"), self.target.lanes
        vectors = PANEL_BYTES // (4 * self.k * lanes)
        if not 0 < vectors < gemm.tiling.vectors:
            return gemm
        rows = even_rows(self.target, vectors, self.m)
        return replace(gemm, cut=RegisterTile(rows, vectors))

    def _gemm(self, element: str) -> Gemm:
        own = {name: getattr(self, name) for name in ("isa", "m", "k", "n", "epilogue")}
        return Gemm(element=element, **own)

    @property
    def halved(self) -> bool:
        """True if there are rows enough to decode for, and steps are tiles or vector pairs."""
        gemm, lanes = self._gemm("bf16"), self.target.lanes
        depth = gemm.tiles.depth if gemm.on_tiles else 2 * lanes
        whole = self.step == self.k or self.step % depth == 0
        wide = self.m >= HALVED_ROWS and self.n >= lanes
        multiplied = gemm.on_tiles or bool(self.target.bf16_dot)
        return self.precision == "bf16" and wide and whole and multiplied

    @property
    def panelled(self) -> bool:
        """True if workgroups decode their panels: these fit the stack and the second cache."""
        fits = 4 * self.k * self.gemm.tiling.vectors * self.target.lanes <= PANEL_BYTES
        return fits and not self.halved and not self.direct

    @property
    def direct(self) -> bool:
        return self.m <= DIRECT_ROWS

    @property
    def width(self) -> int:
        """Columns of a workgroup, of few rows."""
        return min(self.n, COLUMNS)
