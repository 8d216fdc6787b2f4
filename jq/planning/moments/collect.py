"""Second moments of the inputs of contractions: what the recovery of weights is solved with.

    gram = sum over rows r of  weight(r) * x_r x_r^T          [K, K]

for a contraction y = x W. `weight(r)` says how much row r of y moves the program's output
(`jq.ir.autodiff.sensitivity`), so that padding does not count and what matters counts more.

Where rows are positions of sequences, errors that a whole sequence has in common add up in what is
pooled or attended to later, and others cancel. `shared` gives the gram of the sequences' weighted
sums of rows that share ("expand" and "reduce": Eschenhagen et al., "Kronecker-Factored Approximate
Curvature for Modern Neural Network Architectures", 2023).

Sums are taken inside the program, or, of few rows, of some thousand at a time, without those of
weight 0. Memory does not grow with the number of batches but for the extremes of each, where the
whole gram was not asked for. A few rows are kept as they are, drawn with probability weight(r)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from jq.artifact.keys import digest
from jq.artifact.store import Arrays
from jq.base.errors import LOG
from jq.base.system.threads import one_thread
from jq.ir import Program, dtype_of
from jq.ir.autodiff.evaluate import Unsupported
from jq.ir.autodiff.sensitivity import Sensitivity
from jq.ir.build import NAME, string_attr
from jq.ir.oracle.xla import XlaExecutable
from jq.planning.calibration.observer import not_finite
from jq.planning.moments.gains import Gains, Moments
from jq.planning.moments.inputs import Extent, Wanted, extent, other_axes
from jq.planning.moments.readers import Ask, Reader, Results

F32, I32 = np.float32, np.int32
Weights = np.ndarray  # f32[groups, rows]: how much each counts


def collect(
    program: Program,
    data: Sequence[Sequence[np.ndarray]],
    wanted: Sequence[Wanted],
    *,
    power: float = 0.5,
    full: bool = True,
    rows: int = 0,
    shared: float = 0.0,
    samples: Sequence[int] | None = None,
    gains: Gains | None = None,
    others: Sequence[Wanted] = (),
    ahead: Sequence[int] = (),
    report: Callable[[float], None] = lambda share: None,
) -> dict[str, Moments]:
    """Moments by op name.

    Args:
        data: flat inputs, batch by batch; `samples` of them, by number (default: all).
        full: the whole gram; else its diagonal. About so many `rows` are kept.
        power: of the mean squared gradient of a row, which is its weight; 0: all rows alike.
        shared: 0 to 1, how much of a whole gram is of what the rows of a sequence have in common.
        gains: the gradients that are known already; what is found is added.
        others: whose gradients a later pass will ask for, at the batches `ahead`.
        report: told the share of the data that is done."""
    copy = program.clone()
    ops = outermost(copy)
    present = [w for w in wanted if w.name in ops]
    if not present:
        return {}
    chosen = range(len(data)) if samples is None else samples
    gains = Gains() if gains is None else gains
    asked = list({w.name: w for w in (*others, *present) if w.name in ops}.values())
    gradient = partial(sensitivity, program.clone(), asked)  # passes edit this one later
    kept, results = -(-rows // len(chosen)), Results()
    ask = Ask(full, kept, shared)
    readers = [Reader.of(copy, ops[w.name], w, results, ask) for w in present]
    copy.return_values(list(results.values()))
    run, draw = XlaExecutable(copy), np.random.default_rng(0)
    names = [reader.name for reader in readers]
    # BLAS's own threads spend several times the work on waiting for each other.
    with one_thread() as threads, ThreadPoolExecutor(threads) as pool:
        for done, i in enumerate(chosen, 1):
            found = gains.of(names, i, data[i], gradient) if power else {}
            weights = [row_weights(r.extent, found.get(r.name), power) for r in readers]
            drawn = [_draw(draw, counted, kept) for counted in weights]
            bound = [r.bound(*given) for r, *given in zip(readers, weights, drawn, strict=True)]
            run.bind({name: array for arrays in bound for name, array in arrays.items()})
            values = dict(zip(results, run(*data[i]), strict=True))
            finite = pool.map(partial(Reader.add, values=values), readers, weights, drawn)
            for name, fine in zip(names, finite, strict=True):
                if not fine:
                    raise not_finite(i, name)
            report(done / len(chosen))
        moments = dict(zip(names, pool.map(lambda reader: reader.moments(), readers), strict=True))
    for i in ahead if power else ():
        gains.of([w.name for w in asked], i, data[i], gradient)
    return moments


def row_weights(e: Extent, gains: np.ndarray | None, power: float) -> Weights:
    """The weight of each row, given its gain."""
    shape = (e.groups, e.rows)
    if gains is None:
        return np.ones(shape, F32)
    # A convolution's groups read the same rows.
    return np.asarray(np.broadcast_to(gains.reshape(-1, shape[1]), shape) ** F32(power))


def _draw(random: np.random.Generator, weights: Weights, count: int) -> np.ndarray:
    """Numbers of `count` rows, each with probability of its weight, one from each of as many
    stretches of equal weight."""
    total = np.cumsum(weights.reshape(-1), dtype=np.float64)
    at = (np.arange(count) + random.random(count)) / max(count, 1) * total[-1]
    return np.minimum(np.searchsorted(total, at, side="right"), weights.size - 1).astype(I32)


def outermost(program: Program) -> dict[str | None, Any]:
    """The ops of the program's body by their names."""
    return {string_attr(op, NAME): op for op in program.body.operations}


def sensitivity(
    program: Program, wanted: Sequence[Wanted], kind: type[Sensitivity] = Sensitivity
) -> Sensitivity | None:
    """The sensitivity to the rows of these ops, but those of integers; None, with a warning, where
    there is no answer."""
    ops = outermost(program)
    results = {w: ops[w.name].operation.results[0] for w in wanted}
    values = {
        w.name: (result, other_axes(ops[w.name], w))
        for w, result in results.items()
        if dtype_of(result).kind not in "iub"
    }
    try:
        return kind(program, values)
    except Unsupported as reason:
        LOG.warning("all rows of the calibration data count alike: %s", reason)
        return None


def gains_bytes(program: Program, wanted: Iterable[Wanted]) -> int:
    """The bytes of what `sensitivity` finds for one batch, at most."""
    ops = outermost(program)
    extents = [extent(ops[w.name], w) for w in wanted]
    return sum(np.dtype(F32).itemsize * e.groups * e.rows for e in extents)


ROOM = 1 << 30  # bytes of moments that are kept
Found = Mapping[str, Moments]


@dataclass
class MomentsCache:
    """It knows one program, with one set of calibration data, at a time."""

    _program: bytes = b""
    _weights: list[Any] = field(default_factory=list)
    _found: dict[str, tuple[Found, Arrays]] = field(default_factory=dict)
    _solved: dict[str, Arrays] = field(default_factory=dict)

    def of(self, program: Program, question: str, gains: Gains, make: Callable[[], Found]) -> Found:
        """The result of `make`, which may add to the gains, kept for the same question."""
        if not self.is_of(program):
            self._found = {}  # before there are others: they may be large
            self.attach(program)
        key = f"{question} {gains.digest()}"
        if key in self._found:
            found, new = self._found[key]
            gains.unpack(new)
            return found
        held = {id(m): m for f, _ in self._found.values() for m in f.values()}.values()
        if sum(a.nbytes for m in held for a in (m.gram, m.rows, m.low, m.high)) > ROOM:
            self._found = {}
        before = set(gains.known)
        found = make()
        self._found[key] = found, gains.packed(before)
        self._found[f"{question} {gains.digest()}"] = found, {}  # asked again, it knows the gains
        return found

    def solved(self, how: str, arrays: Arrays, solve: Callable[[], Arrays]) -> Arrays:
        """The result of `solve` for these arrays, kept for equal ones."""
        key = digest(how, arrays)
        if key not in self._solved:
            self._solved[key] = solve()
        return self._solved[key]

    def is_of(self, program: Program) -> bool:
        weights = list(program.weights.values())
        same = len(weights) == len(self._weights) and program.bytecode() == self._program
        return same and all(a is b for a, b in zip(weights, self._weights, strict=True))

    def attach(self, program: Program) -> None:
        """Ties what is known to this program: a copy in another process has arrays of its own."""
        self._program, self._weights = program.bytecode(), list(program.weights.values())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_program": b"", "_weights": [], "_solved": {}}
