"""Input of a product's loop nest: the places of codes and weights, and the part of the product."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jq.kernels.emit.builder import Builder
from jq.kernels.emit.values import Index, Indices
from jq.kernels.gemm.product import PanelProduct
from jq.kernels.schedule.padded_output import Part


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Place of the codes of a product's row, and of a panel's weights.

    Attributes:
        runs: runs of codes along two axes; each is read as a stream.
        whole: steps of a run that read whole groups of codes.
        tail: codes after them.
        run_steps: steps of a run in the packed weights.
        stored: weights of a vector's step that exist; None: all.
        flip: codes are stored in the other view (signed or unsigned) than the product reads.
        streams: places in memory that a panel's weights are read from at once.
        fetches: weights are fetched one panel ahead.
        in_pieces: an epilogue among products is cut into pieces of a few vectors.
    """

    product: PanelProduct
    whole: int
    tail: int
    flip: bool
    runs: tuple[int, int] = (1, 1)
    run_steps: int = 0
    stored: int | None = None
    streams: int = 1
    fetches: bool = True
    in_pieces: bool = False

    @property
    @abstractmethod
    def length(self) -> int:
        """Codes of a run."""

    @abstractmethod
    def corner(self, b: Builder, row: Index) -> list[Index]:
        """Start of the codes of a row."""

    def tap(self, b: Builder, corner: Indices, h: Index, w: Index) -> list[Index]:
        """Start of run (h, w) of a row's codes."""
        return list(corner)

    def sample(self, b: Builder, row: Index) -> Index:
        """Index of operands by row."""
        return row


@dataclass(frozen=True)
class PanelPart:
    """The part of a product that a panel computes.

    Attributes:
        rows: of the product, all of them.
        row, column, panel: first row, first column, number in the packed weights.
        prefix: of a batch.
        to: column of the tile where the first one is stored.
        part: of a frame.
    """

    rows: int
    row: Index
    column: Index
    panel: Index
    prefix: Indices = ()
    to: Index = 0
    part: Part | None = None
