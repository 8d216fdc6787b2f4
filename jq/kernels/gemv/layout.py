"""The stored form of `Gemv`'s block-scaled weights: packed at compile time, read in order."""

from dataclasses import dataclass

# Widths of the planes that codes of so many bits are cut into, the lowest bits first.
PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}


@dataclass(frozen=True)
class Layout:
    """Places in a chunk of a panel, in bytes: factors, then one record a block.

    Everything is read in the order in which it lies: a processor that fetches ahead loses its
    place at every jump.

    Attributes:
        blocks: of a chunk.
        factors: of scale and of minimum, f16 by column.
        first, record: where records begin, and their length.
        scales: of scale and of minimum, by column; from the start of a record.
        zero: of zero points, a nibble a column: those of the panel's second vector are high.
        planes: of codes; likewise. The narrowest lies in front, for a step reads a byte of it
            first, and goes on through the widest."""

    blocks: int
    factors: tuple[int, ...]
    first: int
    record: int
    scales: tuple[int, ...]
    zero: int
    planes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return self.first + self.blocks * self.record
