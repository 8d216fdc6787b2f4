"""Description of an artifact, all but its bytes: `manifest.json`."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from jq.artifact.records import (
    Count,
    Part,
    PlannedOp,
    Processor,
    StoredEncoding,
    StoredFile,
    StoredProgram,
    StoredSize,
    StoredTensor,
    Tensor,
    like,
)
from jq.base.tree import check_structure
from jq.target.rules import Rule
from jq.target.target import Target, load_target

# The newest that is read: raised when a reader of the old schema would misread the new one. An
# artifact says the oldest that reads it: 2 where it has several sizes.
SCHEMA_VERSION = 2
SEVERAL_SIZES = 2
TOOL = "jaxq"


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
    encodings: dict[str, Annotated[dict[str, Any], like(StoredEncoding)]] = Field(
        default_factory=dict
    )
    ops: tuple[Annotated[dict[str, Any], like(PlannedOp)], ...] = ()
    unused_rules: tuple[str, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    rules: tuple[Annotated[dict[str, Any], like(Rule)], ...] = ()
    own_files: dict[str, dict[str, Any]] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    float_parameter_bytes: Count = 0
    cpu: Processor = Processor()
    programs: tuple[StoredProgram, ...] = ()
    files: dict[str, StoredFile] = Field(default_factory=dict)
    parameters: dict[str, StoredTensor] = Field(default_factory=dict)

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
