"""Common base of products over windows of an image: shapes and constants."""

from abc import abstractmethod

from jq.base.errors import InternalError
from jq.kernels.epilogue.step import check, operand_types
from jq.kernels.gemm.pair_product import PairProduct
from jq.kernels.gemm.product import PanelProduct, Product
from jq.kernels.tensor import TensorType


class Windowed(Product, shared=True):
    """Codes of `batch` images (or floats) -> [pixels, filters], in f32, i8 or i32.

    Attributes:
        height, width: of the image that is read.
        window, strides, dilations: (H, W)."""

    batch: int
    height: int
    width: int
    channels: int
    window: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)

    @property
    def image(self) -> str:
        """The shape that is read, for people."""
        return f"{self.batch}x{self.height}x{self.width}x{self.channels}"

    @property
    def around(self) -> tuple[tuple[int, ...], ...]:
        """Codes that are read as if they were around the image, low and high, of H and W."""
        return (0, 0), (0, 0)

    @property
    def output(self) -> tuple[int, int]:
        """Ho, Wo."""
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilations, self.window, strict=True)]
        (top, bottom), (left, right) = self.around
        whole = (self.height + top + bottom, self.width + left + right)
        sizes = zip(whole, spans, self.strides, strict=True)
        high, wide = ((size - span) // stride + 1 for size, span, stride in sizes)
        return high, wide

    @property
    def pixels(self) -> int:
        """The number of pixels of the result."""
        return self.batch * self.output[0] * self.output[1]

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the weight that `pack` takes, filters last."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.pixels, self.weight_shape[-1]

    def behind(self) -> tuple[list[TensorType], list[TensorType]]:
        """The operands after the weights: what sums start from, and those of the epilogue."""
        steps = operand_types(self.epilogue, self.shape, self.columns, (self.batch,))
        return self.start_types(self.batch), steps


class WindowPanels(Windowed, PanelProduct, shared=True):
    """[B, H, W * C] in i8 or floats, padded already, -> [B * Ho * Wo, F], in f32, i8 or i32.

    Attributes:
        groups: filters and channels in groups (a depthwise convolution: `Depthwise`)."""

    filters: int
    groups: int = 1

    def __post_init__(self) -> None:
        check(self.epilogue, self.sums)
        self.check_views()
        if self.channels % self.groups or self.filters % self.groups:
            raise InternalError(f"{self.groups} groups do not divide {self.label}")
        if min(self.batch, self.channels, self.filters, *self.output, *self.strides) < 1:
            raise InternalError(f"empty convolution {self.label}")

    @property
    def label(self) -> str:
        return f"{self.image}_{self.filters}x{'x'.join(map(str, self.window))}"

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """HWIO."""
        return (*self.window, self.channels // self.groups, self.filters)

    @property
    def together(self) -> bool:
        """A row of taps is one run of codes."""
        return self.dilations[1] == 1 and self.groups == 1

    @property
    def run(self) -> int:
        """Codes of a run."""
        channels = self.channels // self.groups
        return channels * self.window[1] if self.together else channels

    @property
    def runs(self) -> tuple[int, int]:
        """Runs along H and W of the window."""
        return self.window[0], (1 if self.together else self.window[1])

    @property
    def span(self) -> int:
        """Filters of a group."""
        return self.filters // self.groups

    @property
    def columns(self) -> int:
        """F': the last group may be narrower than a vector."""
        return self.filters + max(0, self.target.lanes - self.span)

    @property
    def codes(self) -> TensorType:
        """The image that is read."""
        return TensorType((self.batch, self.height, self.width * self.channels), self.read)


class PairConvolution(WindowPanels, PairProduct):
    """A `PairProduct` of windows. Operands: codes, padded with their zero point; what `pack` made:
    weights, source, plan, init, and (`row_zero`) zero points i32 [B] and colsum; what the
    epilogue's steps name."""

    @property
    def operands(self) -> tuple[TensorType, ...]:
        (_, *corrections), steps = self.behind()
        return (self.codes, *self.packed_types, *corrections, *steps)
