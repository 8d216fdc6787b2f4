"""Description of an artifact, all but its bytes: `manifest.json`, and the records in it: tensors,
files, programs, sizes, rows of the plan."""

import math
from typing import Annotated, Any, Self

import ml_dtypes
import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from jq.artifact.keys import StoredFile
from jq.base.tree import check_structure
from jq.target import Rule, Target, load_target

# The newest that is read: raised when a reader of the old schema would misread the new one. An
# artifact says the oldest that reads it: 2 where it has several sizes.
SCHEMA_VERSION = 2
SEVERAL_SIZES = 2
TOOL = "jaxq"


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

    dimensions: dict[str, Count] = {}
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


class Manifest(Part):
    """Attributes:
    tool, tool_version, versions: who wrote it, and with which packages.
    pipeline, target, driver, flags: how it was compiled and what runs it.
    inputs, outputs: in order, flat; of the first size.
    sizes: all of them, where there are several.
    in_structure, out_structure: see `jq.base.tree`.
    weights: the float model's weights, by name.
    encodings: weight -> how it is stored (format, shape, granularity, parts, float_dtype, ...;
        `float_copy`: also in float, for ops that a rule keeps float).
    ops: one dict an op of the plan (name, op, decision, lhs, rhs, acc, kernel, reason, ...).
    unused_rules: rules of the user's that matched nothing.
    settings, rules: what the plan was made from, as the pipeline file and the user gave it.
    own_files: content of a pipeline or target file of the user's, under `pipeline`, `target`.
    notes: what else was decided on the way (a skipped step, a default that was used).
    float_parameter_bytes: size of the float model's weights.
    programs: one for each target, the best first; `cpu` is of that one.
    cpu, programs, files, parameters: known once the artifact is written."""

    schema_version: Annotated[int, Field(ge=1, strict=True)] = 1
    tool: str = TOOL
    tool_version: str = ""
    versions: dict[str, str] = {}
    pipeline: str = ""
    target: str = ""
    driver: str = "local-task"
    flags: tuple[str, ...] = ()
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    sizes: tuple[StoredSize, ...] = ()
    in_structure: dict[str, Any] = {}
    out_structure: dict[str, Any] = {}
    weights: dict[str, StoredTensor] = {}
    encodings: dict[str, Annotated[dict[str, Any], like(StoredEncoding)]] = {}
    ops: tuple[Annotated[dict[str, Any], like(PlannedOp)], ...] = ()
    unused_rules: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    rules: tuple[Annotated[dict[str, Any], like(Rule)], ...] = ()
    own_files: dict[str, dict[str, Any]] = {}
    notes: tuple[str, ...] = ()
    float_parameter_bytes: Count = 0
    cpu: Processor = Processor()
    programs: tuple[StoredProgram, ...] = ()
    files: dict[str, StoredFile] = {}
    parameters: dict[str, StoredTensor] = {}

    def own_target(self) -> Target:
        """The target that it was compiled for, which may be the user's own."""
        own = self.own_files.get("target")
        return Target(**own) if own else load_target(self.target)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for structure, tensors in (
            (self.in_structure, self.inputs),
            (self.out_structure, self.outputs),
        ):
            if structure or tensors:
                check_structure(structure, len(tensors))
        counts = {(len(s.inputs), len(s.outputs)) for s in self.sizes}
        if self.sizes and counts != {(len(self.inputs), len(self.outputs))}:
            raise ValueError("sizes of other inputs or outputs")
        named = [name for p in self.programs for name in (p.module, p.dump)]
        if len(set(named)) < len(named):  # each is read, and hashed, for itself
            raise ValueError("two programs of one file")
        variants = {p.variant for p in self.programs}
        if variants and variants != set(range(max(1, len(self.sizes)))):
            raise ValueError("programs of other sizes")
        return self
