"""Common base of attentions: heads in the columns of q, k and v, and the cut of their rows."""

import math
from abc import abstractmethod

from jq.base.errors import InternalError
from jq.kernels.kernel import Kernel
from jq.kernels.machine import tiling
from jq.kernels.tensor import TensorType

STACK = 192 << 10  # bytes of scores and probabilities of a row tile


class Heads(Kernel, shared=True):
    """q [B, Sq, Wq], k [B, Sk, Wk], v [B, Sk, Wv] (, mask) -> [B, Sq, heads * D].

    Head h reads `dim` columns of q from `starts[0] + h * dim`, and of k and v (heads shared by
    groups of queries) from `starts[1 or 2] + h // (heads / kv_heads) * dim`: q, k and v may be
    parts of one tensor, passed three times. Without a batch axis `batch` is 1 all the same.

    Attributes:
        widths: Wq, Wk, Wv.
        mask: what is added to the scores: `none`, `keys` f32 [B, Sk] or `full` f32 [B, Sq, Sk]."""

    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    dim: int
    widths: tuple[int, ...]
    starts: tuple[int, ...]
    mask: str = "none"

    def __post_init__(self) -> None:
        if self.mask not in ("none", "keys", "full"):
            raise InternalError(f"unknown mask {self.mask!r}")
        if min(self.batch, self.queries, self.keys, self.dim, self.kv_heads) < 1:
            raise InternalError(f"empty attention {self.label}")
        if self.heads % self.kv_heads:
            raise InternalError(f"{self.heads} heads cannot share {self.kv_heads}")
        heads = (self.heads, self.kv_heads, self.kv_heads)
        for start, width, n in zip(self.starts, self.widths, heads, strict=True):
            if start + n * self.dim > width:
                raise InternalError(f"{n} heads of {self.dim} from {start} leave {width} columns")
        if self.row_bytes * self.least_tile > STACK:
            raise InternalError(f"{self.keys} keys are more than a row tile can hold")

    @property
    def label(self) -> str:
        return f"{self.batch}x{self.heads}x{self.queries}x{self.keys}x{self.dim}"

    @property
    def padded_dim(self) -> int:
        """The width of a head of v, padded to whole vectors."""
        return math.ceil(self.dim / self.target.lanes) * self.target.lanes

    @property
    @abstractmethod
    def padded_keys(self) -> int:
        """Keys in whole vectors, as products read them."""

    @property
    @abstractmethod
    def packed(self) -> tuple[TensorType, ...]:
        """The keys and values as the second dispatch reads them."""

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of the scratch for one row."""

    @property
    @abstractmethod
    def skips(self) -> bool:
        """True if keys that the mask hides are left out."""

    @property
    def least_tile(self) -> int:
        return 1

    @property
    def tile(self) -> int:
        """Rows of a tile: the accumulators of a score tile fit, and the scratch does."""
        fits = min(self.queries, self.target.registers // 4, STACK // self.row_bytes)
        return max(self.least_tile, fits)

    @property
    def block(self) -> int:
        """Rows of a workgroup."""
        tiles = math.ceil(self.queries / self.tile)
        wanted = tiling.parts(self.batch * self.heads, tiles)
        return min(self.queries, math.ceil(tiles / min(wanted, tiles)) * self.tile)

    def given(self, element: str) -> list[TensorType]:
        """The types of q, k and v."""
        rows = (self.queries, self.keys, self.keys)
        shapes = [(self.batch, n, width) for n, width in zip(rows, self.widths, strict=True)]
        return [TensorType(shape, element) for shape in shapes]

    @property
    def masks(self) -> list[TensorType]:
        """The type of the mask, if there is one."""
        rows = {"none": None, "keys": (), "full": (self.queries,)}[self.mask]
        return [] if rows is None else [TensorType((self.batch, *rows, self.keys), "f32")]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the result."""
        return self.batch, self.queries, self.heads * self.dim
