"""The float model and a compiled one, call by call, as jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.jobs import Result, Work, Workers, in_order, run_jobs
from jq.artifact.keys import program_digest
from jq.artifact.store import Cache
from jq.base.progress import Progress
from jq.base.system.files import temporary_folder
from jq.driver.compiled import CompiledModel
from jq.driver.loading import load
from jq.ir import Program
from jq.ir.oracle.xla import XlaExecutable
from jq.reporting.measuring.evaluation import Evaluation

Pair = tuple[list[np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Both(Work):
    """A job is the inputs of a call; its result, the outputs of the float program and of the
    compiled model, or of the artifact in `files`."""

    program: Program
    compiled: CompiledModel | None
    files: Mapping[str, bytes]

    @staticmethod
    def of(program: Program, compiled: CompiledModel) -> Both:
        """Takes along the files of a loaded artifact: a worker may be on another machine."""
        if not isinstance(compiled.vmfb, Path):
            return Both(program, compiled, {})
        folder = compiled.vmfb.parent
        files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}
        return Both(program, None, files)

    def open(self) -> Callable[[Sequence[np.ndarray]], Result]:
        reference, compiled = XlaExecutable(self.program), self._compiled()
        compiled.check_processor()

        def outputs(inputs: Sequence[np.ndarray]) -> Result:
            sides = {"float": reference(*inputs), "quantized": compiled.call_flat(inputs)}
            return {f"{s}:{i}": x for s, found in sides.items() for i, x in enumerate(found)}

        return outputs

    def _compiled(self) -> CompiledModel:
        if self.compiled is not None:
            return self.compiled
        with temporary_folder() as folder:
            for name, content in self.files.items():
                (folder / name).write_bytes(content)
            found = load(folder)
            _ = found.executable  # holds its files from now on
            return found

    def key(self) -> Any:
        """All that a result depends on."""
        parts: list[Any] = ["compare", program_digest(self.program), self.files]
        if (made := self.compiled) is not None:
            weights = made.parameters if isinstance(made.parameters, Mapping) else {}
            parts += [[p.vmfb for p in made.programs], weights]
        return parts


def outputs_of_both(
    given: Evaluation, compiled: CompiledModel, workers: Workers, progress: Progress
) -> Iterator[Pair]:
    """The outputs of both models, call by call in order, made by `workers`."""
    work = Both.of(given.source.program, compiled)
    items = [tuple(map(np.asarray, call)) for call in given.calls]
    kept = Cache("job", work.key())
    results = run_jobs(work, items, workers, stage="compare", progress=progress, kept=kept)
    count = len(given.source.program.outputs)
    for found in in_order(results):
        sides = ([found[f"{s}:{i}"] for i in range(count)] for s in ("float", "quantized"))
        yield next(sides), next(sides)
