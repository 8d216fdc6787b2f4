"""The records that a manifest consists of: tensors, files, programs, sizes, rows of the plan."""

import math
from typing import Annotated, Any, Self

import ml_dtypes
import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def _dtype(name: str) -> str:
    try:
        found = np.dtype(name)
    except TypeError:
        found = np.dtype(np.void)
    if found.name != name or not (found.kind in "biufc" or hasattr(ml_dtypes, name)):
        raise ValueError("no type of numbers")
    return name


def _extent(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > _LARGEST:
        raise ValueError(f"more than {_LARGEST} elements")
    return shape


_LARGEST = 1 << 48  # elements; far more than any machine holds, and their bytes are still a number
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Shape = Annotated[tuple[Count, ...], Field(max_length=64), AfterValidator(_extent)]
Dtype = Annotated[str, AfterValidator(_dtype)]


class Part(BaseModel):
    """Unknown keys are kept out of the way: a newer tool of the same schema may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Tensor(Part):
    """An input or an output; `dtype` is NumPy's name (or one of `ml_dtypes`)."""

    name: str
    shape: Shape
    dtype: Dtype


class StoredTensor(Part):
    """A tensor that is stored: a weight of the model, or a parameter of the module."""

    shape: Shape
    dtype: Dtype


class StoredFile(Part):
    """A file of the artifact."""

    bytes: Count
    sha256: str


class Processor(Part):
    """Features that the compiled code may use; they have LLVM's names."""

    architecture: str = ""
    features: tuple[str, ...] = ()
    name: str = ""


class StoredProgram(Part):
    """One of the programs: for which target and size, its files, and what its code may use."""

    target: str
    kernels: str = "none"
    module: str
    dump: str
    cpu: Processor = Processor()
    variant: Count = 0


class StoredSize(Part):
    """One of several sizes: its symbolic dimensions, and what its programs take and give."""

    dimensions: dict[str, Count] = Field(default_factory=dict)
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    @property
    def label(self) -> str:
        """`batch=8`."""
        return ", ".join(f"{name}={size}" for name, size in self.dimensions.items())


class StoredEncoding(Part):
    """The stored form of a weight, as far as it is read again."""

    format: str
    shape: Shape
    granularity: str
    parts: dict[str, StoredTensor] = Field(min_length=1)
    float_dtype: Dtype = "float32"
    float_copy: bool = False


class PlannedOp(Part):
    """A row of the plan, as far as it is read again."""

    name: str
    op: str
    decision: str
    reason: str | None = None
    weight: str | None = None
    weights: str | None = None
    activations: str | None = None
    kernel: str | None = None
    no_kernel: str | None = None
    lhs: str | None = None
    rhs: str | None = None
    acc: str | None = None
    merged_from: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _types_together(self) -> Self:
        if len({self.lhs is None, self.rhs is None, self.acc is None}) > 1:
            raise ValueError("types of one side alone")
        return self


def like(kind: type[BaseModel]) -> AfterValidator:
    """A dict that stays what it is: whoever wrote more into it did so for newer readers."""

    def check(content: dict[str, Any]) -> dict[str, Any]:
        kind.model_validate(content)
        return content

    return AfterValidator(check)
