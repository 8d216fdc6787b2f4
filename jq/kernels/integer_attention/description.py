"""Attention on int8 codes: products in integers, probabilities quantized, nothing else stored.

    dispatch 1, workgroup (head, batch):
      k to [D / group, keys], v to [keys / group, D]: the groups that a product reads; their sums
    dispatch 2, workgroup (rows, head, batch):
      for tile of rows:
        scores = f32(q k^T - correction) * factor + mask      tiles of rows x vectors of keys
        per row: e^(score - max), sum, codes                  `zero + round(e^... / (sum * scale))`
        out = codes v - corrections                           accumulators rows x vectors of D
        epilogue, store

With a mask by key, what lies after the last key that it shows is not computed: such keys have the
probability 0.

4 Sq Sk D operations a head, and about 20 Sq Sk for the softmax. Accumulators are exact; without a
mask a row's scores lack what the zero point of k adds to all of them, which no softmax sees (a
large number of a mask would round it away). A probability is within `(keys / 16 + 42) 2^-24 + 2e-7`
of its size, plus what the rounding of its score moves it by (3 2^-24 of the largest score's
magnitude); its code is the rounding of that number."""

import math
from dataclasses import replace

from jq.base.errors import InternalError
from jq.kernels.attention.heads import Heads
from jq.kernels.epilogue.step import COLUMN, SCALAR, Step, check, operand_types
from jq.kernels.kernel import ByColumn
from jq.kernels.schedule.layout import Sequences
from jq.kernels.tensor import TensorType

SPREAD, UNDERFLOW = 2.01, 112.0  # of the largest sum; beyond it, e^-x is 0 (with room for rounding)
SMALLEST_SCALE = 2.0**-30  # of probabilities: steps fit 32 bits


class IntegerAttention(Heads, ByColumn):
    """i8 q [B, Sq, Wq], k [B, Sk, Wk], v [B, Sk, Wv], ... -> [B, Sq, heads * D].

    Operands after q, k and v:
        zeros: i32 [4], the zero points of q, k, v and the probabilities.
        factors: f32 [2], what a score's accumulator is multiplied with, and the scale of the
            probabilities, at least `SMALLEST_SCALE`.
        mask: what is added to the scores: `keys` f32 [B, Sk], `full` [B, Sq, Sk].
        what the epilogue's steps name, by column [N'] (`pad_columns`) or one scalar.
    Heads lie in the columns of q, k and v as in `Attention`.

    Attributes:
        epilogue: steps from i32.
        sequences: which queries are left out (of no other length)."""

    epilogue: tuple[Step, ...] = ()
    sequences: Sequences | None = None
    row_operands = (0,)

    def __post_init__(self) -> None:
        check(self.epilogue)
        if any(how not in (COLUMN, SCALAR) for step in self.epilogue for how, _ in step.operands):
            raise InternalError("the epilogue takes columns and scalars")
        super().__post_init__()
        if self.sequences not in (None, Sequences(self.queries)):
            raise InternalError(f"a sequence of {self.label} is its queries")

    @property
    def group(self) -> int:
        """Codes that one lane of a product takes."""
        return self.target.dot.group

    @property
    def padded_keys(self) -> int:
        return math.ceil(self.keys / self.target.lanes) * self.target.lanes

    @property
    def chunk(self) -> int:
        """Codes of one vector of a product."""
        return self.target.lanes * self.group

    @property
    def query_bytes(self) -> int:
        """Codes of a query in whole chunks."""
        return math.ceil(self.dim / self.chunk) * self.chunk

    @property
    def columns(self) -> int:
        """N': the last head's last vector may be partial."""
        return self.heads * self.dim + self.padded_dim - self.dim

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of scratch memory: scores, and codes as the product takes them."""
        code = TensorType((), self.target.dot.element).dtype.itemsize
        return self.padded_keys * (4 + code) + self.query_bytes * code

    @property
    def operands(self) -> tuple[TensorType, ...]:
        steps = operand_types(self.epilogue, self.shape, self.columns)
        return (
            *self.given("i8"),
            TensorType((4,), "i32"),
            TensorType((2,), "f32"),
            *self.masks,
            *steps,
            *([self.sequences.operand(self.batch * self.queries)] if self.sequences else []),
        )

    def by_sequences(self, sequences: Sequences) -> "IntegerAttention | None":
        return None if sequences != Sequences(self.queries) else replace(self, sequences=sequences)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType(self.shape, check(self.epilogue)),)

    @property
    def skips(self) -> bool:
        """True if keys after the last one that the mask shows are left out (`reach`)."""
        return self.mask == "keys" and self.keys % self.target.lanes == 0

    def spread(self, factor: float) -> float:
        """A key is hidden, its probability 0 whatever the codes are, when its number in the mask is
        this much below the largest one: scores differ by less, and e^-88 counts as 0."""
        return abs(factor) * self.largest_sum * SPREAD + UNDERFLOW

    @property
    def largest_sum(self) -> int:
        """The largest sum of products of q and k, without what k's zero point adds to a row."""
        return self.dim * 255 * 128

    @property
    def packed(self) -> tuple[TensorType, ...]:
        """The keys and what their products start from, v likewise."""
        lead, group = (self.batch, self.kv_heads), self.group
        depth = math.ceil(self.dim / group)
        return (
            TensorType((*lead, depth, self.padded_keys * group), "i8"),
            TensorType((*lead, self.padded_keys), "i32"),
            TensorType((*lead, math.ceil(self.keys / group), self.padded_dim * group), "i8"),
            TensorType((*lead, self.padded_dim), "i32"),
        )
