"""Codes that are places in a table of numbers, which belongs to the tensor: k-means and the like.

`real = scale * table[code]`. The table is the encoding's option `table`, numbers separated by
commas, so that kernels have it as a constant, as they have that of `nf4`. Without it the numbers
are those of the class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import Array, ArrayOps
from jq.formats.base import Encoding, Parts
from jq.formats.elements import Table
from jq.formats.fp4 import NORMAL_QUANTILES
from jq.formats.scaled import Scaled
from jq.formats.scales import FLOAT, Scale

TABLE = "table"
F32 = np.float32


@dataclass(frozen=True)
class _Places(Table):
    """A table in any order."""

    def encode(self, x: np.ndarray, rounding: str) -> np.ndarray:
        order = np.argsort(np.asarray(self.values, F32), kind="stable")
        ascending = Table(tuple(np.asarray(self.values, F32)[order].tolist()))
        return order.astype(np.int8)[ascending.encode(x, rounding)]


class Codebook(Scaled):
    """Any blocks; a scale of 1 where the model has none."""

    bits: ClassVar[int]
    element: ClassVar[Table]
    roundings = ("nearest",)

    def kind(self, enc: Encoding) -> Scale:
        return FLOAT

    def options(self, enc: Encoding) -> Mapping[str, Sequence[str]]:
        return {**super().options(enc), TABLE: (enc.option(TABLE, ""),)}

    def check(self, enc: Encoding) -> None:
        super().check(enc)
        try:
            numbers = self.table(enc).values
        except ValueError:
            numbers = ()
        if len(numbers) != 1 << self.bits or not np.isfinite(numbers).all():
            raise FormatError(f"{enc.format}: the option `table` is no {1 << self.bits} numbers")

    def table(self, enc: Encoding) -> _Places:
        """The numbers of the codes."""
        text = enc.option(TABLE, "")
        return _Places(tuple(map(float, text.split(","))) if text else self.element.values)

    def written(self, numbers: np.ndarray) -> str:
        """A table as the option has it; the last number fills it up."""
        filled = np.pad(np.asarray(numbers, F32), (0, (1 << self.bits) - numbers.size), "edge")
        return ",".join(repr(float(n)) for n in filled)

    def element_of(self, enc: Encoding) -> Table:
        return self.table(enc)

    def decode_elements(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        if "codes" not in self.element_types(enc):
            return self.decode(ops, parts, enc)
        values = self.table(enc).of_elements(ops, parts["codes"])
        return self.kind(enc).applied(ops, values, parts, enc)


class Codebook2(Codebook):
    name, bits, element = "codebook2", 2, Table((-1.0, 0.0, 0.5, 1.0))
    description = "places in a table of 4 numbers of the tensor's own, scaled"


class Codebook4(Codebook):
    name, bits, element = "codebook4", 4, Table(NORMAL_QUANTILES)
    description = "places in a table of 16 numbers of the tensor's own, scaled"
