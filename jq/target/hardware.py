"""Speed of a device: the table `[hardware]` of a target file, validated."""

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from jq.target.device_table import Positive
from jq.target.settings import Strict

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# The element types of operands that are multiplied, as `[hardware]` names them.
MULTIPLIED = (
    *("int2", "int3", "int4", "int8", "int16", "int32", "uint2", "uint4", "uint8"),
    *("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"),
)


def _pair(text: str) -> str:
    """`int8 x int8`: the element types of both operands."""
    sides = text.split(" x ")
    if len(sides) != 2 or not set(sides) <= {*MULTIPLIED}:
        wrong = [side for side in sides if side not in MULTIPLIED]
        what = f"unknown type {wrong[0]!r}" if len(sides) == 2 else "no pair of types"
        raise ValueError(
            f"{what}; known: 'TYPE x TYPE', activations first, of {', '.join(MULTIPLIED)}"
        )
    return text


TypePair = Annotated[str, AfterValidator(_pair)]


class Array(Strict):
    """Sizes in which an array of multipliers takes products; a part of one takes as long."""

    outputs: Positive = 1
    """Output channels."""
    channels: Positive = 1
    """Input channels, for so many `taps` of the window at once."""
    taps: Positive = 1
    deep: Positive | None = None
    """Input channels where it can take one tap at a time instead, if that is faster."""

    def padded(self, inputs: int, taps: int, outputs: int) -> float:
        """The multiply-adds that it takes, as a multiple of those that are needed."""
        terms = _whole(inputs, self.channels) * _whole(taps, self.taps)
        if self.deep:
            terms = min(terms, _whole(inputs, self.deep) * taps)
        return terms * _whole(outputs, self.outputs) / max(1, inputs * taps * outputs)


def _whole(number: int, of: int) -> int:
    return -(-number // of) * of


class Hardware(Strict):
    """Speed of the device, which `jaxq estimate` computes with. Cycles are those of its clock."""

    macs_per_cycle: dict[TypePair, Rate]
    """Multiply-adds by the types of their operands, activations first (`int8 x int8`)."""
    clock_mhz: Rate
    """Cycles per microsecond."""
    elements_per_cycle: Rate
    """Elements that are read or written by what is not a product: sums, tables, rescales."""
    sram_bytes: int = Field(gt=0)
    """On-chip memory for activations."""
    sram_bytes_per_cycle: Rate
    """Bytes to and from it."""
    dram_bytes_per_cycle: Rate
    """Bytes to and from memory off the chip, where weights lie."""
    op_cycles: float = Field(0, ge=0, allow_inf_nan=False)
    """Cycles to start a layer, whatever it does."""
    array: Array = Array()
    """Sizes in which products are taken."""
    outputs_per_cycle: Rate | None = None
    """Results of products that are rescaled and written."""
    element_cycles: dict[str, Rate] = {}
    """Cycles of one element in what is not a product, by its kind, `transpose` among them; of what
    is not named, `elements_per_cycle`."""
    stored_channels: Positive = 1
    """Elements along the last axis are stored in multiples of this."""
    channel_cycles: float = Field(0, ge=0, allow_inf_nan=False)
    """Cycles to read the bias and the scale of an output channel, for each `block_pixels`."""
    block_pixels: Positive | None = None
    """Positions of an image of which the results are made at one time."""

    def stored(self, shape: Sequence[int]) -> int:
        """Elements of a tensor where it is stored."""
        return math.prod(shape[:-1]) * _whole(shape[-1], self.stored_channels) if shape else 1

    def bounds(
        self, products: float, elements: float, dram: float, sram: float = 0
    ) -> dict[str, float]:
        """Cycles of what a layer does at the same time: products that take so many cycles, elements
        read and written, bytes from off the chip and on it. It takes those of the slowest, besides
        `op_cycles` (the roofline model: Williams, Waterman and Patterson, 2009)."""
        return {
            "compute": products,
            "vector": elements / self.elements_per_cycle,
            "dram": dram / self.dram_bytes_per_cycle,
            "sram": sram / self.sram_bytes_per_cycle,
        }
