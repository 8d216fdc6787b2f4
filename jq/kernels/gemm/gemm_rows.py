"""A product and what takes whole rows of it, in one dispatch: nothing between them is stored.

    for block of rows in workgroups:
      for chunk of rows in block:
        fetch what the epilogue adds by element         (a residual: in one stream)
        for panel of columns, tile of rows in chunk:
          products, epilogue                            -> f32 [chunk, N] on the stack
        for row in chunk: normalized, or quantized      -> results

The bits are those of `Gemm` and `Normalize` (or `QuantizeRows`) one after the other. Weights are
read once a chunk, so they must be near. 2 M N K operations and those of the rows."""

import math
from dataclasses import replace
from typing import ClassVar

from jq.base.errors import InternalError
from jq.kernels.gemm.description import Gemm
from jq.kernels.kernel import Kernel
from jq.kernels.machine import tiling
from jq.kernels.rowwise.description import Normalize, QuantizeRows
from jq.kernels.schedule.layout import Sequences
from jq.kernels.tensor import TensorType

STACK = 128 << 10  # bytes between the two
WEIGHTS = 3 << 20  # bytes of weights at most: caches hold them from one chunk to the next
CHUNK, LEAST = 32, 16  # rows of a chunk: as are best, and as are worth it
ROWS = 64  # of a product; where there are fewer, panels of columns make more workgroups


class GemmRows(Kernel):
    """`gemm`, and `normalize` or `quantize` of its result.

    Operands: those of the product, then the second's after its first; results are the second's."""

    family: ClassVar[str] = "gemm_rows"

    gemm: Gemm
    normalize: Normalize | None = None
    quantize: QuantizeRows | None = None
    sequences: Sequences | None = None

    def __post_init__(self) -> None:
        if (self.normalize is None) == (self.quantize is None):
            raise InternalError("a product's rows are either normalized or quantized")
        if self.gemm.results[0] != self.second.operands[0]:
            raise InternalError(f"{self.second.label} are not the rows of {self.gemm.label}")
        if not self.fits(self.gemm):
            raise InternalError(f"rows of {self.gemm.label} are no chunk")

    @staticmethod
    def fits(gemm: Gemm) -> bool:
        """True if whole rows of a product are worth keeping."""
        if gemm.batch > 1 or gemm.on_tiles or gemm.streams > 1 or gemm.floats:
            return False
        near = gemm.k * gemm.n <= WEIGHTS
        return near and gemm.m >= ROWS and _held(gemm) >= LEAST

    @property
    def second(self) -> Normalize | QuantizeRows:
        found = self.normalize or self.quantize
        assert found is not None
        return found

    @property
    def label(self) -> str:
        return self.gemm.label

    @property
    def operands(self) -> tuple[TensorType, ...]:
        counts = [self.sequences.operand(self.gemm.m)] if self.sequences else []
        return (*self.gemm.operands, *self.second.operands[1:], *counts)

    @property
    def row_operands(self) -> tuple[int, ...]:
        return self.gemm.row_operands

    def by_sequences(self, sequences: Sequences) -> "GemmRows | None":
        gemm = self.gemm.by_sequences(sequences)
        if gemm is None:
            return None
        return replace(self, gemm=replace(gemm, rows=None), sequences=sequences)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return self.second.results

    @property
    def chunk(self) -> int:
        """Rows between the two, whole register tiles where they fit; fewer where there are few."""
        gemm, tall = self.gemm, self.gemm.tiling.rows
        wanted = min(CHUNK, math.ceil(gemm.m / (2 * tiling.ENOUGH)))
        tiles = min(math.ceil(wanted / tall), max(1, _held(gemm) // tall))
        return min(gemm.m, tiles * tall)

    @property
    def block(self) -> int:
        """Rows of a workgroup. Of sequences no two chunks: nobody knows how many are wanted."""
        if self.sequences:
            return self.chunk
        chunks = math.ceil(self.gemm.m / self.chunk)
        parts = tiling.parts(1, chunks)
        return min(self.gemm.m, math.ceil(chunks / parts) * self.chunk)


def _held(gemm: Gemm) -> int:
    """Rows that the stack holds."""
    return STACK // (4 * gemm.n)
