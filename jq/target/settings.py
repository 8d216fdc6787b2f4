"""Settings of a pipeline: what to quantize, how, and by which rule. Validated by pydantic."""

from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from jq.base.errors import FormatError, UserError, known
from jq.formats import Encoding, Format, get_format
from jq.formats.checks import check_options

Granularity = Literal["per-tensor", "per-channel", "per-block", "per-token"]
Model = TypeVar("Model", bound=BaseModel)
FLOAT_TYPES = ("float32", "bfloat16", "float16")
# Settings, and groups of them, that are of the program as a whole: rules cannot change them.
WHOLE = (
    "calibration.",
    "kv_cache.",
    "storage.",
    *("recovery", "minutes", "placement", "integer_only", "strict_encodings"),
    *("attention_precision", "convolution_sums", "winograd"),
)
LISTS = ("op_types", "recovery")  # settings that take words with commas as a list
FLOAT = "float"  # the format name that means: leave it in floating point


def _known_format(name: str) -> str:
    if name == FLOAT or name.lower() in Format.registry:
        return name if name == FLOAT else get_format(name).name
    hint = known(name, [FLOAT, *sorted(Format.registry)])
    raise FormatError(f"unknown number format {name!r}", hint=hint)


FORMAT_NAME = AfterValidator(_known_format)
FormatName = Annotated[str, FORMAT_NAME]


class Strict(BaseModel):
    """Unknown keys are errors; values never change after validation. The string after a field
    describes it to `jaxq list settings` and in the docs."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_type(cls, value: Any, info: Any) -> Any:
        """Refuses 1 for true, true for 1 and "1" for either, which pydantic takes."""
        parts = get_args(kind := cls.model_fields[info.field_name].annotation)
        parts = (kind, *parts, *(part for each in parts for part in get_args(each)))
        kinds = [each for each in (bool, int, float) if each in parts]
        given, truth = type(value), bool in kinds
        if kinds and (given is str or (given in (bool, int, float) and (given is bool) != truth)):
            raise ValueError(f"it has to be {'true or false' if truth else 'a number'}")
        return value


class TensorSettings(Strict):
    """Quantization of one kind of tensor."""

    format: FormatName = FLOAT
    """The number format of the quantized values; `float` leaves the tensors as they are."""
    granularity: Granularity = "per-channel"
    """Elements with one scale: the tensor, a channel, a token (a row), or a block of a channel."""
    block_size: int = Field(32, ge=1, le=1 << 16)
    """Number of neighbouring elements that share a scale with `granularity=per-block`."""
    scheme: Literal["symmetric", "asymmetric"] = "symmetric"
    """`symmetric`: zero is code 0; `asymmetric`: a zero point says which code is zero."""
    scale_type: Literal["float32", "float16", "bfloat16"] = "float32"
    """The type that scales are stored in."""
    options: dict[str, str] = {}
    """Options of the format itself, such as how it searches for its scales."""

    @model_validator(mode="after")
    def _known_options(self) -> Self:
        chosen = tuple(sorted(self.options.items()))
        enc = Encoding(self.format, (), (), self.scheme, self.scale_type, chosen)
        if self.format != FLOAT:
            check_options(enc, get_format(self.format).options(enc))
        for name in self.options:  # a rule may choose a format that has it
            if not any(name in each.options(enc) for each in Format.registry.values()):
                raise UserError(f"no format has an option {name!r}", op="options")
        return self


class WeightSettings(TensorSettings):
    """Quantization and storage of weights."""

    emit: Literal["integer", "dequantized", "quant-type"] = "integer"
    """`integer` stores weights as codes and scales; `dequantized` stores the floats that these
    stand for; `quant-type` is like `integer`, with `!quant.uniform` types at the `qdq` level."""


class ActivationSettings(TensorSettings):
    """Quantization of what contractions read."""

    granularity: Granularity = "per-token"
    """Elements with one scale: the tensor, a channel, a token (a row), or a block of a row."""
    scheme: Literal["symmetric", "asymmetric"] = "asymmetric"
    """`symmetric`: zero is code 0; `asymmetric`: a zero point says which code is zero."""
    mode: Literal["dynamic", "static"] = "dynamic"
    """`dynamic`: ranges are found while the program runs; `static`: by calibration."""
    residual: FormatName | None = None
    """The format of tensors that no product reads, in integer-only programs: residual sums, inputs
    of normalizations and of softmax. Without it they have the format of other activations."""

    @property
    def calibrated(self) -> bool:
        return self.format != FLOAT and self.mode == "static"


class CalibrationSettings(Strict):
    """Choice of ranges from the calibration data."""

    method: str = "minmax"
    """The way to choose a range from the values that were seen."""
    relevant: bool = False
    """True if ranges leave out rows that a mask removes later, such as padding."""


class CacheSettings(Strict):
    """Keys and values of a language model."""

    format: FormatName = FLOAT
    """The number format that keys and values of a KV cache are stored in."""


class StorageSettings(Strict):
    """Storage of weights."""

    inline_limit: int = Field(32 << 20, ge=0)
    """All weights are written to a file beside the module where they have this many bytes or more
    together."""
    archive: Literal["irpa", "safetensors"] = "irpa"
    """The type of the file that holds the weights."""


class Settings(Strict):
    """Everything `--set` and a pipeline file can say."""

    weights: WeightSettings = WeightSettings()
    activations: ActivationSettings = ActivationSettings()
    calibration: CalibrationSettings = CalibrationSettings()
    kv_cache: CacheSettings = CacheSettings()
    storage: StorageSettings = StorageSettings()
    activation_products: Literal["int8", "float"] = "float"
    """The arithmetic of products of two activations (attention)."""
    attention_precision: Literal["float32", "bfloat16"] = "float32"
    """The type of the operands of float attention, if the processor multiplies that type; sums
    stay float32."""
    op_types: tuple[str, ...] = ("dot_general", "convolution", "gather")
    """The StableHLO ops that are quantized."""
    min_elements: int = Field(1, ge=0)
    """Weights with fewer elements stay float."""
    recovery: bool | tuple[str, ...] = True
    """The recovery passes that run: `true`, those that are on by default; `false`, none; or those
    that are named."""
    minutes: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Minutes for which codes and scales of weights of less than 8 bits are learned with the
    calibration data, after the other recovery passes, which are chosen by trial where activations
    are quantized; a later run with more goes on."""
    float_type: Literal["own", "float32", "bfloat16", "float16"] = "own"
    """The type in which products that stay float are computed; `own` is the model's own type.
    With `bfloat16`, or with `own` if a pipeline quantizes weights alone (to at most 8 bits),
    operands of products with them are rounded to bfloat16 where the processor multiplies that."""
    placement: Literal["early", "hybrid", "late"] = "hybrid"
    """Place where activations are quantized: `late`, just before contractions; `hybrid`, where it
    costs least, with the same codes; `early`, from the input on for as long as ops have an integer
    form, with calibrated ranges."""
    convolution_sums: Literal["float", "codes"] = "codes"
    """The terms of the residual sum of a convolutional network if ranges are static: floats, or the
    values after rounding to codes, which are stored in int8."""
    winograd: bool = False
    """Float convolutions of 3x3 taps multiply 16 numbers where 36 are needed otherwise, if that
    pays; their weights take 16/9 of the memory, and errors grow."""
    strict_encodings: bool = False
    """Refuses a model that brings quantized weights which cannot be kept as they are; without it,
    they are quantized anew, with a warning."""
    integer_only: bool = False
    """Leaves no float operation between the first quantize and the last dequantize, and refuses a
    model where that is impossible. It needs `placement=early`."""
