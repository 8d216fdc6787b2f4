"""Calibration: an instrumented copy of the program measures its own activations."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jq.artifact.jobs import HERE, Result, Work, Workers, in_order, run_jobs
from jq.artifact.keys import program_digest
from jq.artifact.store import Cache
from jq.base.errors import UserError
from jq.base.progress import silent
from jq.formats.arrays import Array
from jq.ir import Op, Program, at, dtype_of, enclosing, ir, shape_of, stablehlo
from jq.ir.build import NAME, string_attr
from jq.ir.hoist import hoist
from jq.ir.markers import EDGE, marker_kind
from jq.ir.ops import Contraction, rule_of
from jq.ir.oracle.xla import XlaExecutable
from jq.ir.quantized.edges import edge_name
from jq.planning.calibration.histogram import NUMPY_STATS, PROGRAM_STATS, StatOps
from jq.planning.calibration.observer import Observer, Range, Stats, get_observer, not_finite
from jq.planning.calibration.ranges import Ranges, site
from jq.planning.calibration.relevance import Relevance

OUTPUT = "output "  # and its number: no site is called so, which ends in `:` and a number
Rows = tuple[str, list[int]]  # the site whose rows count, and the axes of one row
Place = tuple[slice, bool, Rows | None]  # true: an activation itself is there
NUMBERS = 16 << 20  # of activations in all calls together; beyond, XLA finds the statistics
Batch = tuple[int, Sequence[np.ndarray]]


def instrument(
    program: Program,
    observer: Observer,
    masks: Mapping[str, Sequence[int]] | None = None,
    small: int = 0,
) -> tuple[Program, dict[str, Place]]:
    """A copy with further results, and where in these the statistics of every site are.

    Args:
        masks: shape of the rows of some sites; the copy has a weight `<site>:rows` of that shape,
            and a row for which it is 0 counts as zeros (`_counted` does it to an activation, too).
        small: as many numbers of activations are handed over instead of their statistics: XLA
            takes longer to compile these than NumPy to find them."""
    copy, masks = program.clone(), masks or {}
    sites: dict[str, list[ir.Value]] = {}
    handed: dict[int, Rows | None] = {}
    measured: dict[tuple[ir.Block, ir.Value], list[ir.Value]] = {}
    for op, index in _activations(copy):
        x = op.operands[index]
        name = site(edge_name(op) or string_attr(op, NAME) or "", index)
        # Not shared across the branches of a conditional: only one of them runs.
        stats = next((m for b in enclosing(op) if (m := measured.get((b, x)))), None)
        if stats is None:
            with at(op):
                size = math.prod(shape_of(x))
                if op.operation.block == copy.body and size <= small:
                    small -= size
                    stats = [stablehlo.reshape(x.type, x)]  # an op: see below
                    rows = name, sorted(row_axes(op, index))
                    handed[id(stats)] = rows if name in masks else None
                else:
                    if name in masks:
                        mask = copy.add_weight(f"{name}:rows", np.ones(masks[name], np.float32))
                        x = _counted(PROGRAM_STATS, x, mask, row_axes(op, index))
                    stats = list(observer.measure(PROGRAM_STATS, x))
            measured[op.operation.block, op.operands[index]] = stats
        sites[name] = stats
    # Only now: lifting rebuilds loops, and values that were results of a loop change identity.
    results: list[ir.Value] = []
    places: dict[int, Place] = {}
    for stats in measured.values():
        few = id(stats) in handed
        place = slice(len(results), len(results) + len(stats))
        places[id(stats)] = place, few, handed.get(id(stats))
        results += stats if few else _hoist(copy, stats, observer)
    copy.return_values([*copy.returned, *results])
    return copy, {name: places[id(stats)] for name, stats in sites.items()}


def _counted(ops: StatOps, x: Array, mask: Array, axes: Collection[int]) -> Array:
    """An activation with zeros in the rows, along these axes, that do not count."""
    shape = ops.shape(x)
    wide = ops.broadcast(mask, shape, [a for a in range(len(shape)) if a not in axes])
    return ops.select(ops.equal(wide, 0), 0, x)


def row_axes(op: Op, index: int) -> frozenset[int]:
    """The axes of an operand that one row of it has: those that are summed over."""
    rule = rule_of(op)
    if not isinstance(rule, Contraction):
        return frozenset()
    return next(r.contracted for r in rule.roles(op) if r.index == index)


def _activations(program: Program) -> Iterator[tuple[Any, int]]:
    """Every operand of a contraction that is not a weight itself, and every edge."""
    for op in list(program.walk()):
        rule = rule_of(op)
        if isinstance(rule, Contraction) and string_attr(op, NAME) is not None:
            for role in rule.roles(op):
                if program.weight_name(op.operands[role.index]) is None:
                    yield op, role.index
        elif marker_kind(op) == EDGE:
            yield op, 0


def _rows(program: Program) -> dict[str, tuple[ir.Value, Sequence[int]]]:
    """Every value that is observed, under the name of its first site."""
    found: dict[ir.Value, str] = {}
    rows: dict[str, tuple[ir.Value, Sequence[int]]] = {}
    for op, index in _activations(program):
        x, axes = op.operands[index], row_axes(op, index)
        if x not in found and axes and dtype_of(x).kind == "f":
            found[x] = site(string_attr(op, NAME) or "", index)
            rows[found[x]] = x, sorted(axes)
    return rows


def _hoist(program: Program, stats: list[ir.Value], observer: Observer) -> list[ir.Value]:
    neutral = observer.neutral()

    def combined(index: int, a: ir.Value, b: ir.Value) -> ir.Value:  # the others do not matter
        return observer.combine(PROGRAM_STATS, (a,) * len(neutral), (b,) * len(neutral))[index]

    pairs = enumerate(zip(stats, neutral, strict=True))
    return [hoist(v, program.body, none, partial(combined, i)) for i, (v, none) in pairs]


@dataclass(frozen=True)
class Observation(Work):
    """A job is the number of a batch and its inputs; its result, the statistics of every site."""

    program: Program
    method: str
    relevant: bool
    small: int  # see `instrument`
    origin: str

    def open(self) -> Callable[[Batch], Result]:
        observer = get_observer(self.method)
        rows = Relevance(self.program, _rows(self.program)) if self.relevant else None
        shapes = rows.shapes if rows else {}
        instrumented, sites = instrument(self.program, observer, shapes, self.small)
        run, first = XlaExecutable(instrumented), len(self.program.outputs)

        def observe(batch: Batch) -> Result:
            number, inputs = batch
            kept = rows(inputs, number) if rows else {}
            bound = ((f"{name}:rows", some) for name, some in kept.items())
            run.bind({name: some for name, some in bound if name in instrumented.weights})
            outputs, results = (every := run(*inputs))[:first], every[first:]
            stats: dict[str, Stats] = {}
            for name, (own, few, counted) in sites.items():
                x, *_ = seen = tuple(results[own])
                if few and counted:
                    x = _counted(NUMPY_STATS, x, kept[counted[0]], counted[1])
                stats[name] = seen = observer.measure(NUMPY_STATS, x) if few else seen
                finite = np.isfinite(observer.extremes(seen)).all()
                if not finite and not _empty(observer, seen):
                    raise not_finite(number, name, self.origin)
            found = {f"{OUTPUT}{i}": y for i, y in enumerate(outputs) if number == 0}
            parts = ((k, c, p) for k, seen in stats.items() for c, p in enumerate(seen))
            return found | {f"{k}:{c}": part for k, c, part in parts}

        return observe


def calibrate(
    program: Program,
    batches: Iterable[Sequence[np.ndarray]],
    method: str = "minmax",
    progress: Callable[[float], None] | None = None,
    *,
    relevant: bool = False,
    first: int = 0,
    workers: Workers = HERE,
    origin: str = "calibration data",
) -> Ranges:
    """Runs `batches` (flat lists of inputs) through the program and gives every range seen.

    Args:
        progress: told the share of the batches that is done.
        relevant: leave out rows that never reach the output (see
        `jq.planning.calibration.relevance`).
        first: number of the first batch among those of all shards.
        workers: who runs them; what another process did is kept for a later run.
        origin: what an error calls the batches.

    Raises:
        UserError: there is no batch, or an activation is NaN or infinite; it is named."""
    observer, items = get_observer(method), list(enumerate(map(tuple, batches), first))
    if not items:
        raise UserError("no calibration data", hint="give at least one batch of inputs")
    told = (lambda stage, share: progress(share or 0.0)) if progress else silent
    kept = None
    if not workers.inside:
        kept = Cache("job", ["calibrate", method, relevant, program_digest(program)])
    work = Observation(program, method, relevant, NUMBERS // len(items), origin)
    total: dict[str, Stats] = {}
    outputs: list[np.ndarray] = []
    for stats in in_order(run_jobs(work, items, workers, progress=told, kept=kept)):
        first_outputs = (y for key, y in stats.items() if key.startswith(OUTPUT))
        # In types that NumPy has itself.
        outputs += [y.astype(np.float32) if y.dtype.kind == "V" else y for y in first_outputs]
        for name in dict.fromkeys(k.rpartition(":")[0] for k in stats if not k.startswith(OUTPUT)):
            seen = tuple(stats[f"{name}:{c}"] for c in range(len(observer.neutral())))
            before = total.get(name) or _wide(observer.neutral())
            total[name] = observer.combine(NUMPY_STATS, before, _wide(seen))
    # Where no sample got there is no range.
    reached = {name: stats for name, stats in total.items() if not _empty(observer, stats)}
    extremes = {name: Range(*observer.extremes(stats)) for name, stats in reached.items()}
    statistics = {} if method == "minmax" else reached
    return Ranges(extremes, len(items), method, statistics, outputs=tuple(outputs))


def _wide(stats: Stats) -> Stats:
    """Counts in 64 bits and sums in double, for any number of samples."""
    wide = {"i": np.int64, "f": np.float64}
    return tuple(np.asarray(s).astype(wide[s.dtype.kind]) for s in stats)


def _empty(observer: Observer, stats: Stats) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(stats, observer.neutral(), strict=True))
