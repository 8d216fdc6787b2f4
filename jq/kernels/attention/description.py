"""Attention of every head: `softmax(scale * q k^T + mask) v`, products in bf16 pairs or f32.

    dispatch 1, workgroup (head, batch):
      k transposed to [D / pair, keys], v to [keys / pair, D]: the pairs that a product reads
    dispatch 2, workgroup (rows, head, batch):
      for tile of rows:
        scores = scale q k^T + mask       tiles of rows x 16-lane vectors of keys, loop over D
        per row: max, exp, sum            in vectors; e^x = 2^(x log2 e) by a polynomial
        out = probabilities v             loop over keys, accumulators rows x vectors of D
        out / sum, epilogue, store

On matrix tiles q, k, v and the probabilities are packed into tiles (`attention.amx`). 4 Sq Sk D
operations a head, and about 20 Sq Sk for the softmax. `bf16` rounds q, k, v and the probabilities
to 8 bits of mantissa and sums in f32; `f32` rounds nothing else. Keys past the end (vectors are
whole) have probability 0."""

import math

from jq.base.errors import InternalError
from jq.kernels.attention.heads import Heads
from jq.kernels.epilogue.step import SCALAR, Step, check, operand_types
from jq.kernels.epilogue.steps import LOG2_E
from jq.kernels.machine import CHAINS, ROWS, WORDS
from jq.kernels.tensor import TensorType

SMALLEST_SCALE = 2.0**-100  # scores that are not yet scaled may differ by infinity below it
TILED_QUERIES = 8
FEW = 8  # rows that share a head of k and v


class Attention(Heads):
    """f32 q, k, v (, mask) -> [B, Sq, heads * D].

    Attributes:
        scale: a positive number.
        precision: `bf16` (where the instruction set has it) or `f32`.
        fill: what a score is where the mask is not 0, instead of being added to.
        epilogue: steps from f32 whose operands are scalars."""

    scale: float
    precision: str = "f32"
    fill: float | None = None
    epilogue: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        check(self.epilogue, "f32")
        if self.precision not in ("bf16", "f32"):
            raise InternalError(f"unknown precision {self.precision!r}")
        if self.precision == "bf16" and not self.target.multiplies_bf16:
            raise InternalError(f"{self.isa} has no bf16 product")
        if not SMALLEST_SCALE <= self.scale < math.inf:
            raise InternalError(f"scores are not multiplied by {self.scale}")
        if any(how != SCALAR for step in self.epilogue for how, _ in step.operands):
            raise InternalError("the epilogue of an attention takes scalars alone")
        super().__post_init__()

    @property
    def on_tiles(self) -> bool:
        return self.precision == "bf16" and self.target.tiles and self.queries >= TILED_QUERIES

    @property
    def skips(self) -> bool:
        """True if keys that the mask hides with -inf are left out, in front of the first that it
        shows and after the last."""
        whole = self.keys % CHAINS == 0 and not self.on_tiles
        return self.mask != "none" and whole and self.pair == 1

    @property
    def factor(self) -> float:
        """Factor of a score in the exponent of 2. Without a mask it includes the scale."""
        return LOG2_E * (self.scale if self.mask == "none" else 1.0)

    @property
    def few(self) -> bool:
        """True if k and v are read where they lie (`few_rows`)."""
        rows = self.queries * (self.heads // self.kv_heads)
        return rows <= FEW and self.keys % CHAINS == 0 and self.pair == 1

    @property
    def pair(self) -> int:
        """Products that one lane sums at once; without a bf16 product f32, which is as good."""
        paired = self.on_tiles or bool(self.target.bf16_dot)
        return 2 if self.precision == "bf16" and paired else 1

    @property
    def padded_keys(self) -> int:
        unit = self.target.lanes * self.pair
        return math.ceil(self.keys / unit) * unit

    @property
    def row_bytes(self) -> int:
        return self.padded_keys * 4 * 2

    @property
    def least_tile(self) -> int:
        return ROWS if self.on_tiles else 1

    @property
    def operands(self) -> tuple[TensorType, ...]:
        steps = operand_types(self.epilogue, self.shape, self.heads * self.dim)
        return (*self.given("f32"), *self.masks, *steps)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType(self.shape, check(self.epilogue, "f32")),)

    @property
    def packed(self) -> tuple[TensorType, TensorType]:
        """The keys and values as the second dispatch reads them."""
        kind = "i32" if self.pair == 2 else "f32"
        lead = (self.batch, self.kv_heads)
        if self.on_tiles:
            columns, pairs = self.padded_keys // ROWS, self.padded_keys // (2 * ROWS)
            return (
                TensorType((*lead, columns, math.ceil(self.dim / (2 * ROWS)), WORDS), "i32"),
                TensorType((*lead, self.padded_dim // ROWS, pairs, WORDS), "i32"),
            )
        depth = math.ceil(self.dim / self.pair)
        return (
            TensorType((*lead, depth, self.padded_keys), kind),
            TensorType((*lead, self.padded_keys // self.pair, self.padded_dim), kind),
        )
