"""Attention of every head: `softmax(scale * q k^T + mask) v`, products in bf16 pairs or f32.

    dispatch 1, workgroup (head, batch):
      k transposed to [D / pair, keys], v to [keys / pair, D]: the pairs that a product reads
    dispatch 2, workgroup (rows, head, batch):
      for tile of rows:
        scores = q k^T + mask             tiles of rows x 16-lane vectors of keys, loop over D
        per row: max, exp, sum            in vectors; e^x = 2^(x log2 e) by a polynomial
        out = probabilities v             loop over keys, accumulators rows x vectors of D
        out / sum, epilogue, store

On matrix tiles q, k, v and the probabilities are packed into tiles (`attention_tiles`).
4 Sq Sk D operations a head, and about 20 Sq Sk for the softmax. `bf16` rounds q, k, v and the
probabilities to 8 bits of mantissa and sums in f32; `f32` rounds nothing else. Keys past the end
(vectors are whole) have probability 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jq.errors import InternalError
from jq.kernels.epilogue.steps import SCALAR, Step, check, operand_types
from jq.kernels.kernel import Kernel
from jq.kernels.machine import workgroups
from jq.kernels.machine.tile_cut import ROWS, WORDS
from jq.kernels.tensor import TensorType

Array = np.ndarray[Any, np.dtype[Any]]
STACK = 192 << 10  # bytes of scores and probabilities of a row tile
TILED_QUERIES = 8


@dataclass(frozen=True, kw_only=True)
class Attention(Kernel):
    """f32 q [B, Sq, Wq], k [B, Sk, Wk], v [B, Sk, Wv] (, mask) -> [B, Sq, heads * D].

    Head h reads `dim` columns of q from `starts[0] + h * dim`, and of k and v (heads shared by
    groups of queries) from `starts[1 or 2] + h // (heads / kv_heads) * dim`: q, k and v may be
    parts of one tensor, passed three times. Without a batch axis `batch` is 1 all the same.

    Attributes:
        widths: Wq, Wk, Wv.
        mask: what is added to the scores: `none`, `keys` f32 [B, Sk] or `full` f32 [B, Sq, Sk].
        precision: `bf16` (where the instruction set has it) or `f32`.
        epilogue: steps from f32 whose operands are scalars.
    """

    family: ClassVar[str] = "attention"

    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    dim: int
    widths: tuple[int, ...]
    starts: tuple[int, ...]
    scale: float
    mask: str = "none"
    precision: str = "f32"
    epilogue: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        check(self.epilogue, "f32")
        if self.mask not in ("none", "keys", "full") or self.precision not in ("bf16", "f32"):
            raise InternalError(f"unknown mask {self.mask!r} or precision {self.precision!r}")
        if self.precision == "bf16" and not self.target.multiplies_bf16:
            raise InternalError(f"{self.isa} has no bf16 product")
        if self.heads % self.kv_heads:
            raise InternalError(f"{self.heads} heads cannot share {self.kv_heads}")
        if any(how != SCALAR for step in self.epilogue for how, _ in step.operands):
            raise InternalError("the epilogue of an attention takes scalars alone")
        for start, width, heads in zip(
            self.starts, self.widths, (self.heads, self.kv_heads, self.kv_heads), strict=True
        ):
            if start + heads * self.dim > width:
                raise InternalError(
                    f"{heads} heads of {self.dim} from {start} leave {width} columns"
                )
        if self._row_bytes * (ROWS if self.on_tiles else 1) > STACK:
            raise InternalError(f"{self.keys} keys are more than a row tile can hold")

    @property
    def label(self) -> str:
        return f"{self.batch}x{self.heads}x{self.queries}x{self.keys}x{self.dim}"

    @property
    def operations(self) -> int:
        return 4 * self.batch * self.heads * self.queries * self.keys * self.dim

    @property
    def on_tiles(self) -> bool:
        return self.precision == "bf16" and self.target.tiles and self.queries >= TILED_QUERIES

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
    def padded_dim(self) -> int:
        """Of v: whole vectors."""
        return math.ceil(self.dim / self.target.lanes) * self.target.lanes

    @property
    def _row_bytes(self) -> int:
        return self.padded_keys * 4 * 2

    @property
    def tile(self) -> int:
        """Rows of a tile: the accumulators of a score tile fit, and the scratch does."""
        if self.on_tiles:
            return ROWS
        isa = self.target
        return max(1, min(self.queries, isa.registers // 4, STACK // self._row_bytes))

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
            TensorType((self.batch, n, width), "f32")
            for n, width in zip(rows, self.widths, strict=True)
        ]
        masks: dict[str, list[TensorType]] = {
            "none": [],
            "keys": [TensorType((self.batch, self.keys), "f32")],
            "full": [TensorType((self.batch, self.queries, self.keys), "f32")],
        }
        n = self.heads * self.dim
        steps = operand_types(self.epilogue, (self.batch, self.queries, n), n)
        return (*inputs, *masks[self.mask], *(TensorType(shape, what) for shape, what in steps))

    @property
    def results(self) -> tuple[TensorType, ...]:
        shape = (self.batch, self.queries, self.heads * self.dim)
        return (TensorType(shape, check(self.epilogue, "f32")),)

    @property
    def packed(self) -> tuple[TensorType, TensorType]:
        """k and v as the second dispatch reads them."""
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

    def reference(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        """The same in double precision, without the epilogue."""
        group = self.heads // self.kv_heads

        def head(x: Array, which: int, h: int) -> Array:
            start = self.starts[which] + h * self.dim
            return x[:, :, start : start + self.dim].astype(np.float64)

        outs = []
        for h in range(self.heads):
            scores = head(q, 0, h) @ head(k, 1, h // group).transpose(0, 2, 1) * self.scale
            if mask is not None:
                scores = scores + (mask[:, None, :] if self.mask == "keys" else mask)
            e = np.exp(scores - scores.max(-1, keepdims=True))
            outs.append(e / e.sum(-1, keepdims=True) @ head(v, 2, h // group))
        return np.concatenate(outs, -1)
