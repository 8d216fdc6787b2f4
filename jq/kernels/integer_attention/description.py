"""Attention on int8 codes: products in integers, probabilities quantized, nothing else stored.

    dispatch 1, workgroup (head, batch):
      k to [D / group, keys], v to [keys / group, D]: the groups that a product reads; their sums
    dispatch 2, workgroup (rows, head, batch):
      for tile of rows:
        scores = f32(q k^T - correction) * factor + mask      tiles of rows x vectors of keys
        per row: 2^(score - max), sum, codes                  `zero + round(2^... / (sum * scale))`
        out = codes v - corrections                           accumulators rows x vectors of D
        epilogue, store

With a mask by key, what lies behind the last key that it shows is not computed: such keys have the
probability 0.

4 Sq Sk D operations a head, and about 20 Sq Sk for the softmax. Accumulators are exact; a row's
scores lack what the zero point of k adds to all of them, which no softmax sees. A probability is
within `(keys / lanes + 42) 2^-24 + 2e-7` of its size, plus what the
rounding of its score moves it by (3 2^-24 of the largest score's magnitude); its code is the
rounding of that number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from jq.errors import InternalError
from jq.kernels.attention.description import STACK
from jq.kernels.epilogue.steps import COLUMN, SCALAR, Step, check, operand_types
from jq.kernels.kernel import Kernel
from jq.kernels.machine import workgroups
from jq.kernels.schedule.sequences import Sequences
from jq.kernels.tensor import TensorType

Array = np.ndarray[Any, np.dtype[Any]]
SPREAD, UNDERFLOW = 2.01, 160.0  # of the largest sum; beyond it, 2^x is 0 (with room for rounding)
SMALLEST_SCALE = 2.0**-30  # of probabilities: steps fit 32 bits


@dataclass(frozen=True, kw_only=True)
class IntegerAttention(Kernel):
    """i8 q [B, Sq, Wq], k [B, Sk, Wk], v [B, Sk, Wv], ... -> [B, Sq, heads * D].

    Operands behind q, k and v:
        zeros: i32 [4], the zero points of q, k, v and the probabilities.
        factors: f32 [2], what a score's accumulator is multiplied with (times log2 e: exponents
            are of 2), and the scale of the probabilities, at least `SMALLEST_SCALE`.
        mask: what is added to the scores, times log2 e: `keys` f32 [B, Sk], `full` [B, Sq, Sk].
        what the epilogue's steps name, by column [N'] (`pad_columns`) or one scalar.
    Heads lie in the columns of q, k and v as in `Attention`.

    Attributes:
        low, high: bounds of the probabilities' codes; low is not above their zero point.
        epilogue: steps from i32.
        sequences: which queries are left out (of no other length).
    """

    family: ClassVar[str] = "integer_attention"

    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    dim: int
    widths: tuple[int, ...]
    starts: tuple[int, ...]
    mask: str = "none"
    low: int = -128
    high: int = 127
    epilogue: tuple[Step, ...] = ()
    sequences: Sequences | None = None

    def __post_init__(self) -> None:
        check(self.epilogue)
        if self.mask not in ("none", "keys", "full"):
            raise InternalError(f"unknown mask {self.mask!r}")
        if min(self.batch, self.queries, self.keys, self.dim, self.kv_heads) < 1:
            raise InternalError(f"empty attention {self.label}")
        if self.heads % self.kv_heads:
            raise InternalError(f"{self.heads} heads cannot share {self.kv_heads}")
        if any(how not in (COLUMN, SCALAR) for step in self.epilogue for how, _ in step.operands):
            raise InternalError("the epilogue takes columns and scalars")
        heads = (self.heads, self.kv_heads, self.kv_heads)
        for start, width, n in zip(self.starts, self.widths, heads, strict=True):
            if start + n * self.dim > width:
                raise InternalError(f"{n} heads of {self.dim} from {start} leave {width} columns")
        if self._row_bytes > STACK:
            raise InternalError(f"{self.keys} keys are more than a row tile can hold")
        if self.sequences not in (None, Sequences(self.queries)):
            raise InternalError(f"a sequence of {self.label} is its queries")

    @property
    def label(self) -> str:
        return f"{self.batch}x{self.heads}x{self.queries}x{self.keys}x{self.dim}"

    @property
    def operations(self) -> int:
        return 4 * self.batch * self.heads * self.queries * self.keys * self.dim

    @property
    def group(self) -> int:
        """Codes that one lane of a product takes."""
        return self.target.dot.group

    @property
    def padded_keys(self) -> int:
        return math.ceil(self.keys / self.target.lanes) * self.target.lanes

    @property
    def padded_dim(self) -> int:
        """Of v: whole vectors."""
        return math.ceil(self.dim / self.target.lanes) * self.target.lanes

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
    def _row_bytes(self) -> int:
        """Of the scratch: scores, and codes as the product takes them."""
        code = TensorType((), self.target.dot.element).dtype.itemsize
        return self.padded_keys * (4 + code) + self.query_bytes * code

    @property
    def tile(self) -> int:
        """Rows of a tile: the accumulators of a score tile fit, and the scratch does."""
        return max(1, min(self.queries, self.target.registers // 4, STACK // self._row_bytes))

    @property
    def block(self) -> int:
        """Rows of a workgroup."""
        tiles = math.ceil(self.queries / self.tile)
        wanted = workgroups.parts(self.batch * self.heads, tiles)
        return min(self.queries, math.ceil(tiles / min(wanted, tiles)) * self.tile)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        rows = (self.queries, self.keys, self.keys)
        inputs = [
            TensorType((self.batch, n, width), "i8")
            for n, width in zip(rows, self.widths, strict=True)
        ]
        masks: dict[str, list[TensorType]] = {
            "none": [],
            "keys": [TensorType((self.batch, self.keys), "f32")],
            "full": [TensorType((self.batch, self.queries, self.keys), "f32")],
        }
        steps = operand_types(self.epilogue, self.results[0].shape, self.columns)
        return (
            *inputs,
            TensorType((4,), "i32"),
            TensorType((2,), "f32"),
            *masks[self.mask],
            *(TensorType(shape, what) for shape, what in steps),
            *([self.sequences.operand(self.batch * self.queries)] if self.sequences else []),
        )

    @property
    def row_operands(self) -> tuple[int, ...]:
        return (0,)

    def by_sequences(self, sequences: Sequences) -> IntegerAttention | None:
        if sequences != Sequences(self.queries):
            return None
        return replace(self, sequences=sequences)

    @property
    def results(self) -> tuple[TensorType, ...]:
        shape = (self.batch, self.queries, self.heads * self.dim)
        return (TensorType(shape, check(self.epilogue)),)

    @property
    def skips(self) -> bool:
        """Whether keys behind the last one that the mask shows are left out (`reach`)."""
        return self.mask == "keys" and self.keys % self.target.lanes == 0

    def spread(self, factor: float) -> float:
        """A key is hidden, its probability 0 whatever the codes are, when its number in the mask is
        this much below the largest one: scores differ by less, and 2^-127 counts as 0.
        """
        return abs(factor) * self.largest_sum * SPREAD + UNDERFLOW

    @property
    def largest_sum(self) -> int:
        """Of products of q and k, without what a zero point of k adds to all of a row."""
        return self.dim * 255 * 128

    @property
    def packed(self) -> tuple[TensorType, ...]:
        """k and what its products start from, v likewise."""
        lead, group = (self.batch, self.kv_heads), self.group
        depth = math.ceil(self.dim / group)
        return (
            TensorType((*lead, depth, self.padded_keys * group), "i8"),
            TensorType((*lead, self.padded_keys), "i32"),
            TensorType((*lead, math.ceil(self.keys / group), self.padded_dim * group), "i8"),
            TensorType((*lead, self.padded_dim), "i32"),
        )

    def pad_columns(self, values: Array) -> Array:
        """[N] -> [N']."""
        return np.pad(values, (0, self.columns - len(values)))

    # Reference

    def probabilities(self, q: Array, k: Array, zeros: Array, factor: float, mask: Any) -> Array:
        """In double precision, [heads, B, Sq, Sk]."""
        found = []
        for h in range(self.heads):
            left = self._head(q, 0, h, int(zeros[0]))
            right = self._head(k, 1, h, int(zeros[1]))
            scores = (left @ right.transpose(0, 2, 1)).astype(np.float64) * factor
            if mask is not None:
                scores = scores + (mask[:, None, :] if self.mask == "keys" else mask)
            e = np.exp2(scores - scores.max(-1, keepdims=True))
            found.append(e / e.sum(-1, keepdims=True))
        return np.stack(found)

    def context(
        self, codes: Array, v: Array, zeros: Array, operands: Sequence[Sequence[Array]] = ()
    ) -> Array:
        """The result from the probabilities' codes [heads, B, Sq, Sk]."""
        rows = [
            (codes[h].astype(np.int64) - zeros[3]) @ self._head(v, 2, h, int(zeros[2]))
            for h in range(self.heads)
        ]
        y: Array = np.concatenate(rows, -1).astype(np.int32)
        for step, arrays in zip(self.epilogue, operands, strict=True):
            y = step.reference(y, arrays)
        return y

    def _head(self, x: Array, which: int, h: int, zero: int) -> Array:
        """Integers of one head of q, k or v."""
        h = h if which == 0 else h // (self.heads // self.kv_heads)
        start = self.starts[which] + h * self.dim
        return x[:, :, start : start + self.dim].astype(np.int64) - zero
