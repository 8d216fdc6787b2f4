"""Abilities of a device: the table `[device]` of a target file, validated.

Planning and the passes never emit what is not stated here; `jaxq check` reads the same figures."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from jq.formats import get_format
from jq.formats.requantize import Rescaling, Rounding
from jq.target.settings import FLOAT, FormatName, Strict

# What is computed on codes besides single ops; see docs/reference/integer-only.md.
Function = Literal["table", "softmax", "normalization", "quotient", "compare"]
FUNCTIONS: tuple[Function, ...] = ("table", "softmax", "normalization", "quotient", "compare")
WeightGranularity = Literal["per-tensor", "per-channel", "per-block"]
ActivationGranularity = Literal["per-tensor", "per-token", "per-block"]
Scheme = Literal["symmetric", "asymmetric"]


def _product(text: str) -> str:
    """`int8 x int4`, both formats of integers or floats that there are."""
    sides = text.split(" x ")
    if len(sides) != 2:
        raise ValueError("a product is 'FORMAT x FORMAT', activations first")
    for side in sides:
        if side != FLOAT:
            get_format(side)
    return text


Product = Annotated[str, AfterValidator(_product)]
# From fine to coarse: the nearest that a device has is the next coarser one, else a finer one.
WEIGHTS: tuple[WeightGranularity, ...] = ("per-block", "per-channel", "per-tensor")
ACTIVATIONS: tuple[ActivationGranularity, ...] = ("per-block", "per-token", "per-tensor")
Positive = Annotated[int, Field(ge=1)]


class OpLimits(Strict):
    """Limits of a device for one kind of op on quantized values. What is not said is not limited.

    Shapes are those of the op, whatever computes it: a function by table has none that its ops may
    not have. Where the device has floats, what exceeds a limit is computed in float.

    Axes of windows are those of the op itself. A limit that an op has no axis for means nothing to
    it: a sum of two tensors has no stride."""

    products: tuple[Product, ...] | None = None
    """Pairs of formats, activations first, that this kind of op multiplies. Without it, those of
    the device."""
    weight_granularities: tuple[WeightGranularity, ...] | None = None
    """Groups that may share a scale of this op's weights. Without it, those of the device."""
    constant_weights: bool = False
    """True if one operand has to be a weight, so that two activations cannot be multiplied."""
    max_rank: Positive | None = None
    """The largest number of axes of an operand or result."""
    max_size: Positive | None = None
    """The largest number of elements along an axis of an operand or result."""
    max_batch: Positive | None = None
    """The largest batch: for a convolution or pool the batch axis, for a product all its batch
    axes together."""
    max_kernel: Positive | None = None
    """The largest window along an axis, its dilation included."""
    max_kernel_area: Positive | None = None
    """The largest area of a window: the product of its sizes along all axes."""
    max_stride: Positive | None = None
    """The largest stride along an axis."""
    max_dilation: Positive | None = None
    """The largest dilation along an axis."""
    equal_padding: bool = False
    """True if both sides of an axis need the same padding, or one more at the end (`SAME`)."""
    transposed: bool = True
    """True if transposed convolutions exist (zeros between the elements of the input)."""
    groups: Literal["any", "depthwise", "none"] = "any"
    """Grouped convolutions that exist: any, depthwise ones (every channel is a group), or none."""
    max_channels: Positive | None = None
    """The largest number of input or output channels; for a product, the length of its sum and its
    number of columns."""
    channel_multiple: Positive = 1
    """The numbers of input and output channels have to be multiples of this."""


class Device(Strict):
    """Abilities of the device. Planning never emits what is not listed here."""

    products: tuple[Product, ...] = ("int8 x int8",)
    """The pairs of integer formats that are multiplied, activations first. Weight-only products
    (`float x int4`) need no entry if `float_products` is true."""
    float_products: bool = True
    """True if the device multiplies with a float operand."""
    tensors: tuple[FormatName, ...] = ("int8", "int16")
    """The formats in which integers are added, normalized or put through softmax."""
    weight_granularities: tuple[WeightGranularity, ...] = WEIGHTS
    """Groups that may share a scale of a weight."""
    activation_granularities: tuple[ActivationGranularity, ...] = ACTIVATIONS
    """Groups that may share a scale of an activation."""
    weight_schemes: tuple[Scheme, ...] = ("symmetric", "asymmetric")
    """`symmetric` alone means that zero points of weights have to be 0."""
    activation_schemes: tuple[Scheme, ...] = ("symmetric", "asymmetric")
    """`symmetric` alone means that zero points of activations have to be 0."""
    zero_points: dict[FormatName, Literal["any", "zero"]] = {}
    """The zero points that activations of a format may have, `any` or `zero`; `any` for formats
    that are not named."""
    dynamic: bool = True
    """True if ranges may be found while the program runs."""
    static: bool = True
    """True if ranges may come from calibration."""
    integer_only: bool = False
    """True if the device has no float unit."""
    ops: tuple[str, ...] | None = None
    """The StableHLO names of the ops that the device computes on quantized values. Without it,
    every op that the compiler knows."""
    functions: tuple[Function, ...] = FUNCTIONS
    """Other functions on quantized values: those of single elements by a table, softmax,
    normalizations, quotients of two tensors, comparisons."""
    table_entries: int = Field(1 << 16, ge=0)
    """The largest number of codes that a table may have: 256 for int8, 65536 for int16."""
    bias_bits: int = Field(32, ge=2, le=32)
    """Bits of a bias that is added to an accumulator; a bias that does not fit is added after the
    rescale."""
    rounding: Rounding = "double"
    """The rounding of a rescale: `double` as in TFLite's reference kernels and TOSA's DOUBLE_ROUND,
    `single` as in TOSA's SINGLE_ROUND, `float32` as in XNNPACK (with its sums of two tensors)."""
    xnnpack_sums: bool = True
    """False: with `rounding = "float32"`, sums, differences and products of two tensors of 8 bits
    are ONNX Runtime's, in place of XNNPACK's multipliers of 21 bits."""
    rescale_bits: Literal[64, 32] = 64
    """Bits of a rescale's elements, at most; with 32 it gives the same numbers (`float32` needs
    64)."""
    shared_sums: bool = True
    """A sum of products that is rescaled in two ways is computed once; else for each of them, as
    where a compiler fuses a rescale with the product in front of it alone."""
    factors: Literal["any", "scales"] = "any"
    """The factors of a rescale: any number, or `scales`: the input's scale times one float32
    number, by the result's scale, from which TFLite's kernels derive their mantissas."""
    limits: dict[str, OpLimits] = {}
    """Limits by kind of op: a StableHLO name, or `depthwise` for such convolutions. `default`
    holds for kinds that are not named."""

    @model_validator(mode="after")
    def _widths(self) -> Self:
        if self.rounding == "float32" and self.rescale_bits == 32:
            raise ValueError('rounding = "float32" needs rescale_bits = 64')
        return self

    @property
    def multiplies_weights_alone(self) -> bool:
        """True if one operand of a product has to be a weight."""
        return self.of("dot_general").constant_weights

    @property
    def computes_matrices(self) -> bool:
        """True if a matrix that a model computes from nothing is computed when it runs. A device
        for integers has no floats to do it with, and weights have better formats."""
        return not (self.multiplies_weights_alone or self.integer_only)

    @property
    def rescaling(self) -> Rescaling:
        """The device's rescale."""
        return Rescaling(self.rounding, self.rescale_bits)

    @property
    def of_tflite(self) -> bool:
        """True if kernels of TFLite rescale: reference kernels, or XNNPACK's with its sums."""
        return self.factors == "scales" and self.xnnpack_sums

    @property
    def wide_sums(self) -> bool:
        """True if sums of codes of 16 bits are rescaled from 64 bits, as reference kernels do."""
        return self.of_tflite and self.rounding == "double"

    def for_codes(self, largest: int) -> "Device":
        """The kernels for codes up to this: of 16 bits LiteRT's own, for XNNPACK has none."""
        if largest < 256 or not self.of_tflite or self.rounding != "float32":
            return self
        return self.model_copy(update={"rounding": "double", "table_entries": 1 << 16})

    def of(self, kind: str) -> OpLimits:
        """The limits of one kind of op."""
        fallback = self.limits.get("default", OpLimits())
        if kind == "depthwise":
            fallback = self.limits.get("convolution", fallback)
        return self.limits.get(kind, fallback)
