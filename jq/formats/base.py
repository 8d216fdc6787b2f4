"""Number formats: their base class, and the registry that finds one by name.

A tensor in a format is a dict of *parts*: plain arrays that are stored in the program (`codes`,
`scale`, `zero_point`, or `blocks` of raw bytes). An `Encoding` says how to read them. `decode` is
written once against `ArrayOps`, so that the NumPy evaluation (the specification) and the StableHLO
in the program are the same definition."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from jq.base.errors import FormatError, known
from jq.base.registry import register
from jq.formats.arrays import NUMPY, Array, ArrayOps

Parts = Mapping[str, Array]
Levels = tuple[np.ndarray, Any, Any, np.ndarray | None]  # codes, scale, minimum, zero point


@dataclass(frozen=True)
class Encoding:
    """The stored form of a tensor of logical `shape`.

    Attributes:
        format: name of a registered format.
        shape: logical shape.
        block: block size per axis; 0 means the whole axis shares one scale, 1 that every
            index has its own. A [in, out] kernel: per-tensor (0, 0), per-channel (0, 1),
            per-block of 32 along `in` (32, 1). Activations per token: (1, ..., 1, 0).
        scheme: `symmetric` or `asymmetric`.
        scale_type: NumPy name of the stored scale's type (`float32`, `float16`, `bfloat16`);
            formats with a scale type of their own ignore it.
        options: sorted pairs of what one format alone understands (`divisor`, `rounding`,
            `scale_rounding`); see `option`."""

    format: str
    shape: tuple[int, ...]
    block: tuple[int, ...]
    scheme: str = "symmetric"
    scale_type: str = "float32"
    options: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len(self.block) != len(self.shape):
            raise FormatError(f"block {self.block} needs one entry per axis of shape {self.shape}")
        if any(b < 0 for b in self.block):
            raise FormatError(f"block sizes must not be negative, got {self.block}")

    def option(self, name: str, default: str) -> str:
        return dict(self.options).get(name, default)

    @property
    def grid(self) -> tuple[int, ...]:
        """Shape of the scales: the number of blocks along each axis."""
        return tuple(
            1 if b == 0 else math.ceil(n / b) for n, b in zip(self.shape, self.block, strict=True)
        )

    @property
    def granularity(self) -> str:
        """`per-tensor`, `per-channel` or `per-block`, for people."""
        if any(b > 1 for b in self.block):
            return "per-block"
        return "per-tensor" if math.prod(self.grid) == 1 else "per-channel"

    def with_shape(self, shape: tuple[int, ...], block: tuple[int, ...]) -> "Encoding":
        return replace(self, shape=shape, block=block)


@dataclass(frozen=True)
class Integers:
    """A tensor for integer arithmetic: value = scale * (codes - zero_point) + offset.

    `scale` and `offset` (f32) and `zero_point` (i32) have an entry for every `block` codes along
    each axis, as those of an `Encoding` have."""

    codes: Array
    scale: Array
    zero_point: Array | None
    offset: Array | None
    block: tuple[int, ...]


class Format(ABC):
    """A number format. Subclasses define `name` and register themselves by being defined."""

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    schemes: ClassVar[tuple[str, ...]] = ("symmetric",)  # that can be chosen
    in_registers: ClassVar[bool] = True  # decoded without tables of more than 16 entries
    block: ClassVar[int] = 0  # values along one axis, where it is tied to blocks of so many
    in_bfloat16: ClassVar[bool] = False  # its numbers are bfloat16's, from 2^-126 on
    has_minimum: ClassVar[bool] = False  # its integers have an offset whatever the blocks
    # Quantizing dequantized values again, in whole blocks, returns them unchanged.
    idempotent: ClassVar[bool] = False
    registry: "ClassVar[dict[str, Format]]" = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.name or "name" not in cls.__dict__:
            return  # an abstract family
        register(Format.registry, "number format", cls.name, cls())

    @abstractmethod
    def check(self, enc: Encoding) -> None:
        """Raises `FormatError` with the reason when `enc` is not a valid use of this format."""

    def options(self, enc: Encoding) -> Mapping[str, Sequence[str]]:
        """The options that it understands, and their values; of `enc` the scale type matters."""
        return {}

    @abstractmethod
    def storage(self, enc: Encoding) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and stored dtype of every part. Sub-byte codes are packed in int8."""

    @abstractmethod
    def encode(self, x: np.ndarray, enc: Encoding) -> dict[str, np.ndarray]:
        """Quantizes a float array of `enc.shape` into its parts. NaN and inf are refused."""

    @abstractmethod
    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """The float32 array of `enc.shape` that the parts stand for."""

    def element_types(self, enc: Encoding) -> dict[str, np.dtype[Any]]:
        """The types that parts have where each number has a type of its own, as other compilers
        take them (`int4`, `float8_e4m3fn`); parts that are stored so already are missing."""
        return {}

    def decode_elements(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """`decode` of parts that have the types of `element_types`, as conversions of them."""
        return self.decode(ops, parts, enc)

    def to_numpy(self, parts: Mapping[str, np.ndarray], enc: Encoding) -> np.ndarray:
        """`decode` in NumPy; formats override it to keep temporaries of large tensors small."""
        return np.asarray(self.decode(NUMPY, parts, enc))

    def fake_quantize(self, ops: ArrayOps, x: Array, enc: Encoding) -> Array:
        """`decode` of what `x` is quantized to in a program, f32 of `enc.shape`."""
        raise FormatError(f"{self.name} has no fake quantization")

    @property
    def at_run_time(self) -> bool:
        """True if a program can quantize to it by the data themselves (`quantize_dynamic`)."""
        return False

    def quantize_dynamic(self, ops: ArrayOps, x: Array, enc: Encoding) -> dict[str, Array]:
        """The parts of `x` with parameters of `x` itself, codes one in a byte or more.

        A block that holds NaN or an infinity decodes to NaN."""
        raise FormatError(f"{self.name} is no format of activations")

    def default_block(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...] | None:
        """The block this format is tied to when it has one (MX: 32 along `axis`), else None."""
        rank = len(shape)
        whole = tuple(self.block if i == axis % rank else 1 for i in range(rank))
        return whole if self.block else None

    @property
    def integer_bits(self) -> int | None:
        """Bits of the integers that a product is computed with; None where there are none."""
        return None

    def integers(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Integers | None:
        """The integers themselves; None where there are none."""
        return None

    def integers_of_data(
        self, ops: ArrayOps, x: Array, enc: Encoding, largest: Array | None = None
    ) -> Integers | None:
        """`integers` of `quantize_dynamic`; of a part of a tensor, `largest` is the largest
        magnitude in all of it, where its parameters depend on that."""
        return self.integers(ops, self.quantize_dynamic(ops, x, enc), enc)

    def block_levels(self, parts: Parts, enc: Encoding) -> Levels:
        """A constant weight's integers, as a product by blocks takes them.

        Returns i8 codes of `enc.shape`; scale f32, minimum f32 or None and zero point i8 or None,
        from 0 on, of the grid of `integers`: `(code - zero) * scale + minimum`. A format may give
        scale and minimum as pairs of i8 integers and their factors.

        Raises:
            FormatError: there are no such integers."""
        found = self.integers(NUMPY, parts, enc)
        if found is None:
            raise FormatError(f"the elements of {self.name} are no multiples of one number in int8")
        if found.zero_point is not None:
            raise FormatError("no kernel for minima of codes of 8 bits")
        minimum = None if found.offset is None else np.asarray(found.offset)
        return np.asarray(found.codes), np.asarray(found.scale), minimum, None

    def of_codes(
        self, codes: np.ndarray, zero: np.ndarray, enc: Encoding
    ) -> tuple[Encoding, dict[str, np.ndarray]] | None:
        """Parts that store the codes and zero points (of `enc.grid`) that a model brings, and their
        encoding; None where the format has no such codes."""
        return None

    def stored_bits(self, enc: Encoding) -> int:
        """Bits of a stored code."""
        return 8

    @property
    def filler(self) -> int:
        """The field that completes a row of packed codes: zero, where codes have one."""
        return 0

    def run_along(self, enc: Encoding, axes: Iterable[int]) -> int:
        """Number of codes that share a scale along the axes that a product sums over; 0: all."""
        return max(enc.block[a] for a in axes)

    def stored_bytes(self, enc: Encoding) -> int:
        """Bytes of all parts together."""
        return sum(math.prod(s) * d.itemsize for s, d in self.storage(enc).values())


def get_format(name: str) -> Format:
    """The format called `name`, in any case; an unknown name is an error that lists the known."""
    try:
        return Format.registry[str(name).lower()]
    except KeyError:
        hint = known(str(name), sorted(Format.registry))
        raise FormatError(f"unknown number format {name!r}", hint=hint) from None


def unpacked(enc: Encoding) -> Encoding:
    """The encoding of codes that a program computes, one in a byte or more."""
    fmt = get_format(enc.format)
    if fmt.stored_bits(enc) >= 8 or "packing" not in fmt.options(enc):
        return enc
    options = dict(enc.options) | {"packing": "none"}
    return replace(enc, options=tuple(sorted(options.items())))
