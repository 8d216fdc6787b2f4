"""Softmax over rows, of scores that may be masked, and the quantization of the result.

    for block of rows in workgroups:
      for 4 rows:                        # together, so that dependent operations overlap
        s = x * scale + mask             -> scratch, max
        e = 2^((s - max) log2 e)         -> scratch, sum
        y = e / sum                      -> stored, or its codes (their range in a pass before)

About 30 operations an element. Error of y: relative below (K / 16 + 40) 2^-24 + 2e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jq.errors import InternalError
from jq.kernels.kernel import Kernel
from jq.kernels.machine.isa import CHAINS
from jq.kernels.machine.workgroups import row_block
from jq.kernels.rowwise.quantization import RowQuantization
from jq.kernels.tensor import TensorType

Array = np.ndarray[Any, np.dtype[Any]]
LOG2_E = math.log2(math.e)
TOGETHER = 4
STACK = 192 << 10  # bytes of the rows in scratch


@dataclass(frozen=True, kw_only=True)
class Softmax(Kernel):
    """f32 [batch * heads * queries, K] (, mask) (, scale, zero point) -> f32, its codes, or both.

    Attributes:
        mask: added to the scores: `none`, `keys` f32 [batch, K], or `full` f32
            [batch * queries, K].
        factor: what scores are multiplied with before.
        keep, scheme: as `Normalize` has them; a static scheme takes its operands last.
    """

    family: ClassVar[str] = "softmax"

    batch: int
    heads: int
    queries: int
    k: int
    mask: str = "none"
    factor: float = 1.0
    keep: bool = True
    scheme: RowQuantization | None = None

    def __post_init__(self) -> None:
        if min(self.m, self.k) < 1:
            raise InternalError(f"empty softmax {self.label}")
        if self.mask not in ("none", "keys", "full"):
            raise InternalError(f"unknown mask {self.mask!r}")
        if not self.keep and self.scheme is None:
            raise InternalError("a softmax without a result")
        if self.together * self.padded * 4 > STACK:
            raise InternalError(f"rows of {self.k} are more than the stack can hold")

    @property
    def m(self) -> int:
        return self.batch * self.heads * self.queries

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}"

    @property
    def operations(self) -> int:
        return 30 * self.m * self.k

    @property
    def padded(self) -> int:
        return math.ceil(self.k / CHAINS) * CHAINS

    @property
    def together(self) -> int:
        """Rows at a time."""
        return max(1, min(TOGETHER, row_block(self.m, self.k), STACK // (4 * self.padded)))

    @property
    def operands(self) -> tuple[TensorType, ...]:
        rows = {"none": 0, "keys": self.batch, "full": self.batch * self.queries}[self.mask]
        given = self.scheme.operands if self.scheme is not None else []
        return (
            TensorType((self.m, self.k), "f32"),
            *([TensorType((rows, self.k), "f32")] if rows else []),
            *given,
        )

    @property
    def results(self) -> tuple[TensorType, ...]:
        kinds = [TensorType((self.m, self.k), "f32")] if self.keep else []
        return (*kinds, *(self.scheme.results(self.m, self.k) if self.scheme else []))

    def reference(self, x: Array, mask: Array | None = None) -> Array:
        """y in double precision."""
        s = x.astype(np.float64).reshape(self.batch, self.heads, self.queries, self.k) * self.factor
        if mask is not None:
            rows = 1 if self.mask == "keys" else self.queries
            s = s + mask.astype(np.float64).reshape(self.batch, 1, rows, self.k)
        e = np.exp(s - s.max(-1, keepdims=True))
        y: Array = e / e.sum(-1, keepdims=True)
        return y.reshape(self.m, self.k)
