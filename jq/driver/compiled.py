"""A compiled model: a callable that can be saved, loaded, audited."""

import mmap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.load import Artifact
from jq.artifact.parameters import read_checked
from jq.artifact.programs import DUMP, check_runs
from jq.artifact.save import save_artifact
from jq.base.errors import UserError
from jq.base.guard.worker import WORKER
from jq.base.system.files import as_path
from jq.base.tables import size, to_html
from jq.base.tree import Structure, flatten, unflatten
from jq.driver.audit import Audit, audit_program
from jq.frontends.tracing.inputs import flat_inputs
from jq.ir import TensorSpec
from jq.ir.types import signature
from jq.iree.dump.reader import read_dump
from jq.iree.runtime import Archive, Executable
from jq.planning.decisions import QuantPlan


@dataclass(eq=False)  # one by itself, as a function is
class CompiledModel(Artifact):
    """An artifact in memory (or on disk, when loaded) and the program to run.

    Attributes:
        manifest: everything known about the artifact but its bytes.
        programs: what was compiled, for each target, the best first; of several sizes in turn.
        parameters: out-of-line weights, or their file; None when they are inside the module.
        levels, plan, source: the program at every level, the `QuantPlan`, and the `jq.Source` that
            was compiled; None or empty unless the model was compiled in this process.
        emit: the levels that `save` also writes.
        seconds: the time of each stage.

    Example:
        ```python
        compiled = jq.compile(model, "int8-dynamic")
        print(compiled.audit())  # stored bytes, and the types of every product
        outputs = compiled(*model.example_inputs)  # as the function's result, in NumPy
        ```"""

    plan: QuantPlan | None = None
    source: Any = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None

    def __post_init__(self) -> None:
        self._executable: Executable | None = None
        self._archive: Archive | None = None
        self._at_sizes: dict[int, CompiledModel] = {}
        activations = self.manifest.settings.get("activations")
        self._nan_told = not isinstance(activations, dict) or activations.get("mode") != "static"

    @property
    def sizes(self) -> "tuple[CompiledModel, ...]":
        """The model at each of its sizes, which share their weights; itself, where there is one."""
        count = len(self.manifest.sizes)
        return tuple(self._at_size(i) for i in range(count)) if count else (self,)

    def _at_size(self, index: int) -> "CompiledModel":
        if index not in self._at_sizes:
            stored = self.manifest.sizes[index]
            update = {"inputs": stored.inputs, "outputs": stored.outputs, "sizes": ()}
            own = tuple(p for p in self.programs if p.variant == index)
            one = replace(self, manifest=self.manifest.model_copy(update=update), programs=own)
            one._archive = self._weights_in_memory()
            self._at_sizes[index] = one
        return self._at_sizes[index]

    def at_shapes(self, shapes: Sequence[tuple[int, ...]]) -> "CompiledModel":
        """The model at the size that takes inputs of these shapes."""
        if not self.manifest.sizes:
            return self
        for i, stored in enumerate(self.manifest.sizes):
            if [tuple(t.shape) for t in stored.inputs] == list(shapes):
                return self._at_size(i)
        given = ", ".join(map(str, shapes))
        there = (", ".join(str(tuple(t.shape)) for t in s.inputs) for s in self.manifest.sizes)
        what = f"no program takes inputs of the shapes {given}"
        raise UserError(what, hint=f"there are: {'; '.join(there)}")

    def __repr__(self) -> str:
        what = f"{self.manifest.pipeline} for {self.manifest.target}, {size(sum(self._sizes()))}"
        return f"<CompiledModel {what}: {signature(self.inputs, self.outputs)}>"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(i.name, tuple(i.shape), i.dtype) for i in self.manifest.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(o.name, tuple(o.shape), o.dtype) for o in self.manifest.outputs)

    @property
    def executable(self) -> Executable:
        """The module, loaded. It must be compiled for this processor: `UserError` if not."""
        if self._executable is None:
            self.check_processor()
            vmfb: Any = self.vmfb  # of files what the manifest says, in memory of our own
            vmfb = self._checked(vmfb) if isinstance(vmfb, Path) else vmfb
            parameters: Any = self.parameters or None
            if isinstance(parameters, Path):
                parameters = self._weights_in_memory()
            self._executable = Executable.load(
                vmfb, parameters, threads=self.threads or 1, dtypes=[o.dtype for o in self.outputs]
            )
        return self._executable

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The function's result: its pytree of NumPy arrays (of files: dicts, lists and tuples).

        Inputs come in their order, or by name where each of them is one array. Of several sizes the
        program runs whose inputs have these shapes."""
        structure, one = self.manifest.in_structure, self
        inputs = (*inputs, *self._in_order(len(inputs), named)) if named else inputs
        if self.manifest.sizes:
            one = self.at_shapes(_shapes(structure, inputs))
        flat = flat_inputs(one.inputs, structure, inputs)
        found, made = one.executable(*flat), self.levels.get("target")
        self.warn_of_nan(flat, found)
        if made is None or made.out_tree is None:
            return unflatten(self.manifest.out_structure, found)
        return made.out_tree.unflatten(found)

    def _in_order(self, given: int, named: Mapping[str, Any]) -> list[Any]:
        """The inputs behind the first `given`, of which each is one array."""
        names = [spec.name for spec in self.inputs][given:]
        if sorted(names) != sorted(named):
            what = f"inputs are given by the names {', '.join(named)}, the model has"
            raise UserError(f"{what} {', '.join(names) or 'none'}", hint="or give all in order")
        return [named[name] for name in names]

    def warn_of_nan(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Warns, once, of NaN in an input that no output shows: codes of known scales have none."""
        if not self._nan_told and any(map(_has_nan, inputs)) and not any(map(_has_nan, outputs)):
            self._nan_told = True
            said = "an input has NaN and no output shows it: static activations have 0 in its place"
            warnings.warn(said, stacklevel=3)

    def call_flat(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The program's own calling convention: flat arrays in, flat arrays out."""
        return self.at_shapes([x.shape for x in inputs]).executable(*inputs)

    def _weights_in_memory(self) -> Archive | None:
        """The file of the weights, read once; None where they are no file."""
        if self._archive is None and isinstance(self.parameters, Path):
            self._archive = Archive(self._checked(self.parameters), self.parameters.suffix[1:])
        return self._archive

    def _checked(self, path: Path) -> mmap.mmap:
        noted = self.manifest.files[path.name]
        return read_checked(path, noted.bytes, noted.sha256)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled as what was saved or built: without the program that runs, which the copy loads
        when it is called, and without the levels, which belong to this process."""
        loaded: dict[str, Any] = {"_executable": None, "_archive": None, "_at_sizes": {}}
        return {**self.__dict__, **loaded, "levels": {}, "plan": None, "source": None}

    def check_processor(self) -> None:
        """Raises `UserError` when this processor lacks what the compiled code may use."""
        check_runs(self.programs)

    def audit(self) -> Audit:
        """Stored bytes, contraction types, float ops, as the compiler's own program shows them."""
        program = self.program
        if isinstance(program.vmfb, Path):  # from a file: anybody may have written it
            WORKER.ask("jq.iree.dump.reader:try_dump", program.dump.encode(), DUMP)
        found = audit_program(self.manifest.model_dump(), read_dump(program.dump), *self._sizes())
        first = self.programs[0].variant
        programs = tuple((p.target, p.size) for p in self.programs if p.variant == first)
        sizes = tuple(
            (s.label, sum(p.size for p in self.programs if p.variant == i))
            for i, s in enumerate(self.manifest.sizes)
        )
        needed = program.requirements(alone=len(programs) == 1)
        return replace(found, programs=programs, sizes=sizes, requirements=needed)

    def _sizes(self) -> tuple[int, int]:
        """Bytes of the program that runs here, and of the weights of all."""
        module = self.program.size
        if self.parameters is None:
            return module, 0
        if isinstance(self.parameters, Path):
            return module, self.parameters.stat().st_size
        return module, sum(a.nbytes for a in self.parameters.values())

    def save(
        self,
        directory: str | Path,
        *,
        overwrite: bool = False,
        force: bool = False,
        sign: str | Path | None = None,
        stablehlo_version: str | None = None,
    ) -> Path:
        """Writes the artifact directory, wholly or not at all.

        Args:
            overwrite: replace an artifact of ours that is there; `force` says the same.
            sign: file of an Ed25519 private key to sign it with; see `docs/how-to/security.md`.
            stablehlo_version: of `integer.portable.mlirbc`, such as `1.13.0`, for older tools.

        Raises:
            UserError: the directory exists and is not to be replaced, or cannot be written."""
        replace, key = overwrite or force, None if sign is None else Path(sign)
        return save_artifact(
            as_path(directory),
            self,
            force=replace,
            how="overwrite=True",
            key=key,
            stablehlo_version=stablehlo_version,
        )

    def _repr_html_(self) -> str:
        """The view in a notebook: what was quantized and what was not."""
        return to_html(repr(self), *self.audit().tables())


def _has_nan(array: np.ndarray) -> bool:
    return "float" in array.dtype.name and array.size > 0 and bool(np.isnan(array.max()))


def _shapes(structure: Structure, inputs: Sequence[Any]) -> list[tuple[int, ...]]:
    try:
        return [np.shape(x) for x in flatten(structure, tuple(inputs))]
    except ValueError as error:
        raise UserError(f"inputs do not fit the model: {error}") from error
