"""Weights are rounded so that products with the calibration data change least (GPTQ).

See `_solve` for the method. A weight that is read by anything but matrix products and convolutions,
or stored in a format without a grid (`_grids`), keeps plain rounding, and the reason is logged. One
that another pass chose codes for is left alone. The program stays as it is."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.system.threads import one_thread
from jq.formats import Encoding, is_affine
from jq.ir import Program
from jq.passes.base import LOG, PassContext, Recovery, of_weight
from jq.passes.recovery import _inputs as inputs
from jq.passes.recovery._descent import Solution
from jq.passes.recovery._grids import FormatGrid, bits_of, grid_of, has_grid
from jq.passes.recovery._ranges import far_exponents
from jq.passes.recovery._solve import joined, solve
from jq.planning.moments.collect import Moments
from jq.planning.moments.inputs import Wanted
from jq.planning.moments.outputs import output_grams

Array = np.ndarray
MOST_OUTPUTS = 4096  # columns; beyond, what they do together takes too much memory


@dataclass(frozen=True)
class Task:
    """Weights to solve: by name their products, and the matrix with how that is encoded."""

    program: Program
    cx: PassContext
    uses: Mapping[str, list[inputs.Use] | str]
    solvable: dict[str, tuple[inputs.Matrix, Encoding]]

    def parts(self) -> list[list[str]]:
        """The weights in as many parts as their moments need to fit in memory."""
        grams = {  # numbers in those of its rows and of its results
            n: m.groups * math.prod(m.permuted[: m.contracted]) ** 2 + _outputs_of(m, enc) ** 2
            for n, (m, enc) in self.solvable.items()
        }
        return inputs.in_parts({n: 8 * size for n, size in grams.items()})


@dataclass(frozen=True)
class Gptq(Recovery):
    """Options: `power` and `shared`, see `jq.planning.moments.collect.collect`; `samples`, how many
    batches of the calibration data are enough where all codes have 8 bits or more, whose rounding
    matters little (fewer bits take all); `outputs`: fewer bits are weighed by how far directions of
    a result move the output, too (`jq.planning.moments.outputs`); others: `_solve.solve`, `rounds`
    of fewer than 8 bits."""

    optional = False
    power: float = 0.5
    shared: float = 0.25
    samples: int = 64
    damping: float = 0.1
    passes: int = 3
    rounds: int = 3
    outputs: bool = True

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return any(map(has_grid, cx.plan.weights.values()))

    def recover(self, program: Program, cx: PassContext) -> bool:
        task = self._task(program, cx)
        what = f"{self!r} {self.batches_of(task)} {sorted(task.solvable.items())}"
        with one_thread():  # for all of them: to find the libraries takes as long as a small weight
            codes = cx.found(program, what, lambda: self._solve_all(task))
        for key, array in codes.items():
            name, _, part = key.rpartition(":")
            program.chosen.setdefault(name, {})[part] = array
        return bool(task.solvable)

    def weighs(self, program: Program, cx: PassContext) -> tuple[Sequence[Wanted], Sequence[int]]:
        task = self._asked(program, cx)
        if not (task and task.solvable):
            return (), ()
        weighed = [use.wanted for use in inputs.uses_in(program)] if self.power else []
        return weighed, self.batches(cx, task.solvable.values())

    def look(self, program: Program, cx: PassContext) -> None:
        task = self._asked(program, cx)
        if task and len(parts := task.parts()) == 1:  # several do not fit at once
            self._moments(task, parts[0])
            self._columns(task, parts[0])

    def _asked(self, program: Program, cx: PassContext) -> Task | None:
        """The weights that it will choose codes for by the data."""
        asked = cx.recover and cx.data and self.wanted(program, cx)
        return self._task(program, cx) if asked else None

    def _task(self, program: Program, cx: PassContext) -> Task:
        """The weights that it chooses codes for; of the others the reason is logged."""
        task = Task(program, cx, inputs.uses_of_weights(program, cx), {})
        for name, reads in task.uses.items():
            if name in program.chosen:
                continue
            try:
                if isinstance(reads, str):
                    raise inputs.NotApplicable(reads)
                enc = cx.plan.weights[name]
                if not has_grid(enc):
                    what = f"{enc.format} has no codes with a scale below 8 bits"
                    raise inputs.NotApplicable(what)
                size = np.abs(np.asarray(program.weights[name], np.float32))
                largest = size.max(initial=0, keepdims=True)
                if not is_affine(enc.format) and far_exponents(largest).any():
                    raise inputs.NotApplicable("its numbers are far from 1")
                task.solvable[name] = reads[0].matrix, inputs.matrix_encoding(reads[0].matrix, enc)
            except inputs.NotApplicable as reason:
                LOG.info("%s: %s is rounded plainly: %s", self.name, name, reason)
        return task

    def batches(self, cx: PassContext, solved: Iterable[tuple[Any, Encoding]]) -> Sequence[int]:
        """The numbers of the batches that it looks at for weights with these encodings."""
        count = len(cx.data or ())
        if cx.batches is not None or not narrow(solved):
            return inputs.spread(count, self.samples) if cx.batches is None else cx.batches
        held = inputs.held_out(count) if cx.settings.minutes and count > 1 else ()
        return [i for i in range(count) if i not in held]

    def aims(self, task: Task) -> Any:
        """Other weights to come close to, as `gptaq.Earlier` has them; None: the model's own."""
        return None

    def batches_of(self, task: Task) -> Sequence[int]:
        return self.batches(task.cx, task.solvable.values())

    def _moments(self, task: Task, names: Iterable[str]) -> dict[str, Moments]:
        """Moments, by weight, of what it is multiplied by."""
        wanted, samples = {n: task.uses[n] for n in names}, self.batches_of(task)
        return inputs.moments_of_weights(
            task.program, task.cx, wanted, self.power, shared=self.shared, samples=samples
        )

    def _solve_all(self, task: Task) -> dict[str, np.ndarray]:
        """The stored parts of every weight, under `name:part`."""
        done: dict[str, np.ndarray] = {}
        parts, aims = task.parts(), self.aims(task)
        for i, names in enumerate(parts):
            moments, columns = self._moments(task, names), self._columns(task, names)
            for j, name in enumerate(names):
                gram, matrix = moments.pop(name).gram, task.solvable[name][0]
                aim = matrix.of(np.asarray(task.program.weights[name]).astype(np.float32))
                aim, gram = aims.aim(name, aim, gram) if aims else (aim, gram)
                try:
                    stored = self._stored(task, name, aim, gram, columns.pop(name, None))
                except UserError as reason:  # what it aims at has no scale
                    LOG.warning("%s: %s is rounded plainly: %s", self.name, name, reason.message)
                    continue
                if aims:
                    aims.put(name, stored)
                done |= {f"{name}:{part}": array for part, array in stored.items()}
                task.cx.report((i + (j + 1) / len(names)) / len(parts))
        return done

    def _columns(self, task: Task, names: Iterable[str]) -> dict[str, np.ndarray]:
        """G of `_solve.solve`, by weight of few bits."""
        wanted: dict[str, Wanted] = {}
        for name in names if self.outputs else ():
            reads = [use for use in task.uses[name] if isinstance(use, inputs.Use)]
            if len(reads) == 1 and reads[0].ordered and _outputs_of(*task.solvable[name]):
                wanted[name] = reads[0].wanted
        every, chosen, known = list(wanted.values()), self.batches_of(task), task.cx.moments

        def find() -> Mapping[str, Moments]:
            return output_grams(task.program, task.cx.data or (), every, chosen) if every else {}

        asked = f"{every} outputs {chosen}"
        seen = known.of(task.program, asked, task.cx.gains, find) if known is not None else find()
        return {name: seen[w.name].gram for name, w in wanted.items() if w.name in seen}

    def _stored(
        self, task: Task, name: str, weight: Array, gram: Array, outputs: Array | None
    ) -> Mapping[str, np.ndarray]:
        """The parts of one weight f32[K, N]; several plans may ask for the same."""
        (matrix, inner), enc = task.solvable[name], task.cx.plan.weights[name]
        known = task.cx.moments

        def solved() -> dict[str, np.ndarray]:
            grid = grid_of(weight, inner)
            with of_weight(name):
                found = self._by_groups(weight, matrix.groups, gram, inner, grid, outputs)
            codes = matrix.back(found.codes, enc.shape)
            scale, zero = (matrix.back(v, enc.grid) for v in (found.scale, found.zero))
            return grid.stored(codes, scale, zero, enc)

        if known is None:
            return solved()
        how = f"{self._solver(enc)} {name} {matrix} {enc}"
        given = {"weight": weight, "gram": gram} | ({} if outputs is None else {"outputs": outputs})
        return known.solved(how, given, solved)

    def _by_groups(
        self,
        weight: np.ndarray,
        groups: int,
        gram: np.ndarray,
        enc: Encoding,
        grid: FormatGrid,
        outputs: np.ndarray | None,
    ) -> Solution:
        """Each group of columns with the moments of its own rows."""
        count = weight.shape[1] // groups
        own = enc.with_shape((len(weight), count), enc.block)
        grams = gram.reshape(groups, len(weight), len(weight))
        columns = [weight[:, g * count : (g + 1) * count] for g in range(groups)]
        with one_thread() as threads:
            how = self._solver(enc) | {"grid": grid, "outputs": outputs, "threads": threads}
            return joined([solve(w, h, own, **how) for w, h in zip(columns, grams, strict=True)])

    def _solver(self, enc: Encoding) -> dict[str, Any]:
        """The options of `solve` for weights with this encoding."""
        rounds = self.rounds if bits_of(enc) < 8 else 1
        return {"damping": self.damping, "passes": self.passes, "rounds": rounds}


def narrow(solved: Iterable[tuple[Any, Encoding]]) -> bool:
    return any(bits_of(enc) < 8 for _, enc in solved)


def _outputs_of(matrix: inputs.Matrix, enc: Encoding) -> int:
    """The number of columns, where what is known of them is of use; else 0."""
    count = math.prod(matrix.permuted[matrix.contracted :])
    return count if matrix.groups == 1 and bits_of(enc) < 8 and 1 < count <= MOST_OUTPUTS else 0
