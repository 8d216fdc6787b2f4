"""What is known about an artifact but its bytes: `manifest.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Self

import ml_dtypes
import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from jq.ir import Program
from jq.settings import Rule
from jq.target import Target
from jq.tree import check_structure, structure_of

# The newest that is read: raised when a reader of the old schema would misread the new one. An
# artifact says the oldest that reads it: 2 where it has several sizes.
SCHEMA_VERSION = 2
SEVERAL_SIZES = 2
TOOL = "jaxq"
_PACKAGES = ("iree-base-compiler", "jax", "jaxlib", "numpy", "ml-dtypes")


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


class _Part(BaseModel):
    """Unknown keys are kept out of the way: a newer tool of the same schema may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Tensor(_Part):
    """An input or an output; `dtype` is NumPy's name (or one of `ml_dtypes`)."""

    name: str
    shape: Shape
    dtype: Dtype


class StoredTensor(_Part):
    """A tensor that is stored: a weight of the model, or a parameter of the module."""

    shape: Shape
    dtype: Dtype


class StoredFile(_Part):
    """A file of the artifact."""

    bytes: Count
    sha256: str


class Processor(_Part):
    """What the compiled code may use; features have LLVM's names."""

    architecture: str = ""
    features: tuple[str, ...] = ()
    name: str = ""


class StoredProgram(_Part):
    """One of the programs: for which target and size, its files, and what its code may use."""

    target: str
    kernels: str = "none"
    module: str
    dump: str
    cpu: Processor = Processor()
    variant: Count = 0


class StoredSize(_Part):
    """One of several sizes: its symbolic dimensions, and what its programs take and give."""

    dimensions: dict[str, Count] = Field(default_factory=dict)
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    @property
    def label(self) -> str:
        """`batch=8`."""
        return ", ".join(f"{name}={size}" for name, size in self.dimensions.items())


class _Encoding(_Part):
    """How a weight is stored, as far as it is read again."""

    format: str
    shape: Shape
    granularity: str
    parts: dict[str, StoredTensor] = Field(min_length=1)
    float_dtype: Dtype = "float32"
    float_copy: bool = False


class _Op(_Part):
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


def _like(kind: type[BaseModel]) -> AfterValidator:
    """A dict that stays what it is: whoever wrote more into it did so for newer readers."""

    def check(content: dict[str, Any]) -> dict[str, Any]:
        kind.model_validate(content)
        return content

    return AfterValidator(check)


class Manifest(_Part):
    """Attributes:
    tool, tool_version, versions: who wrote it, and with which packages.
    pipeline, target, driver, flags: how it was compiled and what runs it.
    inputs, outputs: in order, flat; of the first size.
    sizes: all of them, where there are several.
    in_structure, out_structure: see `jq.tree`.
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
    cpu, programs, files, parameters: known once the artifact is written.
    """

    schema_version: Annotated[int, Field(ge=1, strict=True)] = 1
    tool: str = TOOL
    tool_version: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    pipeline: str = ""
    target: str = ""
    driver: str = "local-task"
    flags: tuple[str, ...] = ()
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    sizes: tuple[StoredSize, ...] = ()
    in_structure: dict[str, Any] = Field(default_factory=dict)
    out_structure: dict[str, Any] = Field(default_factory=dict)
    weights: dict[str, StoredTensor] = Field(default_factory=dict)
    encodings: dict[str, Annotated[dict[str, Any], _like(_Encoding)]] = Field(default_factory=dict)
    ops: tuple[Annotated[dict[str, Any], _like(_Op)], ...] = ()
    unused_rules: tuple[str, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    rules: tuple[Annotated[dict[str, Any], _like(Rule)], ...] = ()
    own_files: dict[str, dict[str, Any]] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    float_parameter_bytes: Count = 0
    cpu: Processor = Processor()
    programs: tuple[StoredProgram, ...] = ()
    files: dict[str, StoredFile] = Field(default_factory=dict)
    parameters: dict[str, StoredTensor] = Field(default_factory=dict)

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
        variants = {p.variant for p in self.programs}
        if variants and variants != set(range(max(1, len(self.sizes)))):
            raise ValueError("programs of other sizes")
        return self


def describe_build(
    *,
    program: Program,
    source: Program,
    pipeline: str,
    target: Target,
    ops: Sequence[Mapping[str, Any]],
    unused_rules: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    rules: Sequence[Mapping[str, Any]] = (),
    own_files: Mapping[str, Mapping[str, Any]] | None = None,
    notes: Sequence[str] = (),
) -> Manifest:
    """The manifest of `program` (the `target` level) that was made from `source` (`float`)."""
    inputs, outputs = _tensors(program.inputs), _tensors(program.outputs)
    weights = float_weights(source)
    return Manifest(
        tool_version=_version(TOOL),
        versions={name: _version(name) for name in _PACKAGES},
        pipeline=pipeline,
        target=target.name,
        driver=target.driver,
        flags=target.flags,
        inputs=inputs,
        outputs=outputs,
        in_structure=_structure(program.in_tree, len(inputs)),
        out_structure=_structure(program.out_tree, len(outputs)),
        weights=weights,
        encodings=program.encodings,
        ops=tuple(dict(op) for op in ops),
        unused_rules=tuple(unused_rules),
        settings=dict(settings or {}),
        rules=tuple(dict(rule) for rule in rules),
        own_files={kind: dict(content) for kind, content in (own_files or {}).items()},
        notes=tuple(notes),
        float_parameter_bytes=sum(_bytes(w) for w in weights.values()),
    )


def with_sizes(
    manifest: Manifest, programs: Sequence[tuple[Mapping[str, int], Program]]
) -> Manifest:
    """The manifest of an artifact of several sizes: dimensions of each, and its program."""
    sizes = tuple(
        StoredSize(
            dimensions=dict(dimensions),
            inputs=_tensors(program.inputs),
            outputs=_tensors(program.outputs),
        )
        for dimensions, program in programs
    )
    return manifest.model_copy(update={"sizes": sizes, "schema_version": SEVERAL_SIZES})


def float_weights(source: Program) -> dict[str, StoredTensor]:
    """The weights of the float model. One that came quantized counts as what it stands for."""
    weights = {
        name: StoredTensor(shape=array.shape, dtype=array.dtype.name)
        for name, array in source.weights.items()
    }
    for name, enc in source.encodings.items():
        for part in enc["parts"]:
            weights.pop(f"{name}:{part}", None)
        weights[name] = StoredTensor(shape=tuple(enc["shape"]), dtype=enc["float_dtype"])
    return weights


def _bytes(tensor: StoredTensor) -> int:
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _tensors(specs: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=s.name, shape=s.shape, dtype=s.dtype) for s in specs)


def _structure(tree: Any, count: int) -> dict[str, Any]:
    if tree is None:
        return {"tuple": [{"leaf": i} for i in range(count)]}
    return dict(structure_of(tree))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
