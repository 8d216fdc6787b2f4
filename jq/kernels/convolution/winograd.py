"""Convolutions of 3x3 taps with fewer products: Winograd's minimal filtering F(2x2, 3x3).

    V[i] = (B' d B)[i]        of the 4x4 numbers d under each tile of 2x2 pixels, by channel
    M[i] = V[i] @ U[i]        16 products [tiles, C] x [C, F]; U = G w G' is packed
    y = A' M A                2x2 pixels, by filter; epilogue, store

(Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015, section 4.1.) A tile
takes 16 multiplications for 36, and 56 additions. Weights take 16/9 of their memory. Points are
rounded as operands are, so that errors are relative to the largest numbers of a tile, not of a
window; and what is not finite reaches all pixels of the tiles that read it."""

from dataclasses import fields
from functools import cached_property

import ml_dtypes
import numpy as np

from jq.base.errors import InternalError
from jq.kernels.convolution.description import Convolution
from jq.kernels.gemm.description import Gemm
from jq.kernels.schedule.layout import Batch
from jq.kernels.tensor import Array, TensorType

LEAST_CHANNELS, LEAST_PIXELS = 32, 64
POINTS = 16  # numbers of a tile
G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.float32) / 2


class Winograd(Convolution):
    """Operands and results are those of a `Convolution` of floats, but for the packed weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not has_tiles(self):
            raise InternalError(f"no tiles of 2x2 pixels of {self.label}")

    @staticmethod
    def of(conv: Convolution) -> "Winograd | None":
        """The same convolution, where fewer products are worth more weights."""
        wide = min(conv.channels, conv.filters) >= LEAST_CHANNELS
        if not has_tiles(conv) or not wide or conv.pixels < LEAST_PIXELS:
            return None
        return Winograd(**{f.name: getattr(conv, f.name) for f in fields(conv)})

    @property
    def line(self) -> int:
        """Tiles of 2x2 pixels side by side."""
        return self.output[1] // 2

    @cached_property
    def gemm(self) -> Gemm:
        """The 16 products, of numbers that are rounded already."""
        element = "bf16_bits" if self.halves else "f32"
        m, k, n = self.pixels // 4, self.channels, self.filters
        return Gemm(isa=self.isa, element=element, m=m, k=k, n=n, rows=Batch(POINTS))

    @property
    def operands(self) -> tuple[TensorType, ...]:
        image, _, *steps = super().operands
        return (image, self.gemm.operands[1], *steps)

    def _packed(self, weight: Array) -> Array:
        floats = weight.view(ml_dtypes.bfloat16) if self.halves else weight
        points = np.einsum("ih,jw,hwcf->ijcf", G, G, floats.astype(np.float32))
        stored = points.astype(floats.dtype).reshape(POINTS, self.channels, self.filters)
        return self.gemm.pack(stored)["weights"]


def has_tiles(conv: Convolution) -> bool:
    """True if a convolution has 3x3 taps and an even number of pixels each way, and its points can
    be stored as they are multiplied: as f32, or as bf16 of vectors."""
    plain = conv.groups == 1 and conv.strides == conv.dilations == (1, 1)
    even = not (conv.output[0] % 2 or conv.output[1] % 2)
    points = conv.element == "f32" or (conv.takes_bits and not conv.target.tiles)
    return plain and conv.window == (3, 3) and even and points
