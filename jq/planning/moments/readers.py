"""Readers of the moments of one input of a contraction: inside the program, or of its rows.

A reader adds results to an instrumented program and sums up what they are, sample by sample."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from jq.ir import Op, Program, at, ir
from jq.planning.calibration.histogram import NUMPY_STATS
from jq.planning.calibration.histogram import PROGRAM_STATS as OPS
from jq.planning.moments import gains
from jq.planning.moments.gains import F32, F64, Moments, gram_alone, shared_weights, shares
from jq.planning.moments.inputs import Wanted, extent, rows_of

I32 = np.int32
SMALL = 2 << 20  # numbers in the rows of one product and sample
Results = dict[Hashable, ir.Value]  # of the instrumented program, in order
Values = Mapping[Hashable, np.ndarray]


@dataclass(frozen=True)
class Ask:
    """The question to every reader.

    Attributes:
        full: the whole gram; else its diagonal.
        kept: how many rows of a sample are kept.
        shared: see `jq.planning.moments.collect.collect`; for the whole gram."""

    full: bool
    kept: int
    shared: float = 0.0


class Reader(ABC):
    """Reads the operand `w` of `op` in `program`; `results` takes what is to be returned."""

    def __init__(self, program: Program, op: Op, w: Wanted, results: Results, ask: Ask) -> None:
        self.extent, self.full, self.name = extent(op, w), ask.full, w.name
        self.shared = ask.shared if ask.full and self.extent.sequences else 0.0
        self.seen: Moments | None = None
        self._instrument(program, op, w, results, ask.kept)

    @staticmethod
    def of(program: Program, op: Op, w: Wanted, results: Results, ask: Ask) -> "Reader":
        """Rows are handed over where they are few: to add up their grams would cost more than the
        products; and where they are small: XLA takes longer to compile the sums, and to multiply
        without the symmetry of a gram, than NumPy to add up all."""
        e = extent(op, w)
        few = e.rows <= e.width or e.rows * e.width <= SMALL
        kind = FewRows if e.groups == 1 and few else ManyRows
        return kind(program, op, w, results, ask)

    def bound(self, weights: np.ndarray, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """The inputs of the program for a sample."""
        return {}

    def add(self, weights: np.ndarray, drawn: np.ndarray, values: Values) -> bool:
        """Takes a sample in: f32[groups, rows], the rows to keep, results; False: not finite."""
        new = self._read(values, weights, drawn)
        self.seen = new if self.seen is None else self.seen.add(new)
        return bool(np.isfinite(new.gram).all())

    def moments(self) -> Moments:
        """The moments over all samples."""
        assert self.seen is not None
        return self.seen

    @abstractmethod
    def _instrument(
        self, program: Program, op: Op, w: Wanted, results: Results, kept: int
    ) -> None: ...

    @abstractmethod
    def _read(self, values: Values, weights: np.ndarray, drawn: np.ndarray) -> Moments: ...


class FewRows(Reader):
    """The operand as it is, of which NumPy makes rows: XLA takes long to compile the patches of
    convolutions. Rows that do not count take no further part."""

    def _instrument(self, program: Program, op: Op, w: Wanted, results: Results, kept: int) -> None:
        self.operand, self.rows = op.operands[w.operand], rows_of(op, w, NUMPY_STATS)
        self.gram: gains.RowsGram | None = gains.RowsGram() if self.full else None
        results[self.operand] = self.operand

    def _read(self, values: Values, weights: np.ndarray, drawn: np.ndarray) -> Moments:
        x, counted = self.rows(values[self.operand])[0], weights[0]
        keep = counted > 0
        rows, own = x[keep], counted[keep, None]
        fine = np.isfinite(x).all()
        if self.gram:
            with np.errstate(all="ignore"):  # what is not finite is refused
                given = gains.counted_rows(x, weights, self.extent.sequences, self.shared)
            if fine := fine and np.isfinite(given).all():
                self.gram.add(given)
            return gram_alone(np.where(fine, 0, np.nan), weights)  # the gram itself at the end
        scaled = rows.astype(F64) * own  # float32 holds no square of 1e20
        diagonal = (scaled * rows).sum(0) + np.where(fine, 0, np.nan)
        low, high = rows[None].min(1, initial=np.inf), rows[None].max(1, initial=-np.inf)
        total, share = shares(weights, len(drawn))
        return Moments(diagonal, total, scaled.sum(0), low, high, x[drawn], share)

    def moments(self) -> Moments:
        found = super().moments()
        return replace(found, gram=self.gram.total()) if self.gram else found


class ManyRows(Reader):
    """Sums are taken inside the program."""

    def _instrument(self, program: Program, op: Op, w: Wanted, results: Results, kept: int) -> None:
        """Adds what computes the Gram matrix, weighted sum, range and some rows, after `op`."""
        e = self.extent
        shape = [e.groups, e.rows, e.width]
        self._weights, self._kept = f"{self.name}:importance", f"{self.name}:kept"
        self._shared = f"{self.name}:shared"
        weights = program.add_weight(self._weights, np.ones([e.groups, e.rows], F32))
        index = program.add_weight(self._kept, np.zeros(kept, I32))
        with at(op, after=True):
            x = rows_of(op, w)(op.operands[w.operand])
            scaled = OPS.mul(x, OPS.broadcast(weights, shape, [0, 1]))
            if self.full:
                values = [gains.gram(OPS, scaled)]
                if self.shared:
                    again = program.add_weight(self._shared, np.ones([e.groups, e.rows], F32))
                    common = OPS.mul(x, OPS.broadcast(again, shape, [0, 1]))
                    runs = [e.groups, e.sequences, e.rows // e.sequences, e.width]
                    common = gains.total(OPS, OPS.reshape(common, runs), [2])
                    values.append(gains.gram(OPS, common))
            else:
                squares = OPS.mul(OPS.convert(x, F64), OPS.convert(scaled, F64))
                diagonal, sums = (gains.total(OPS, v, [1]) for v in (squares, scaled))
                some = OPS.rows(OPS.reshape(x, [e.groups * e.rows, e.width]), index)
                values = [diagonal, sums, *self._extremes(x, weights), some]
        self._keys = [(self.name, i) for i in range(len(values))]
        results.update(zip(self._keys, values, strict=True))

    def _extremes(self, x: ir.Value, weights: ir.Value) -> list[ir.Value]:
        """The smallest and the largest value of the rows that count."""
        shape = OPS.shape(x)
        counts = OPS.equal(OPS.maximum(weights, 0), 0)
        found = []
        for bound, reduce in ((np.inf, OPS.reduce_min), (-np.inf, OPS.reduce_max)):
            counted = OPS.select(OPS.broadcast(counts, shape, [0, 1]), bound, x)
            found.append(OPS.reshape(reduce(counted, [1]), [shape[0], shape[2]]))
        return found

    def bound(self, weights: np.ndarray, drawn: np.ndarray) -> dict[str, np.ndarray]:
        # Of the whole gram each factor has the root of a weight.
        given = {self._weights: np.sqrt(weights) if self.full else weights, self._kept: drawn}
        if self.shared:
            given[self._shared] = shared_weights(weights, self.extent.sequences)
        return given

    def _read(self, values: Values, weights: np.ndarray, drawn: np.ndarray) -> Moments:
        found = [values[key] for key in self._keys]
        gram, *others = (a[0] if len(weights) == 1 else a for a in found[:4])
        if self.full:
            if self.shared:
                gram = (1 - self.shared) * gram + self.shared * others[0]
            return gram_alone(gram, weights)
        low, high, rows = found[2:5]  # of each group
        total, share = shares(weights, len(rows))
        return Moments(gram, total, others[0], low, high, rows, share)
