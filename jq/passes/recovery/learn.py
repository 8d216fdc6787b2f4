"""Codes and scales of weights are learned with the calibration data, for as long as minutes allow.

    minimise over codes and scales  E |y(x; W') - y(x; W)|^2 / |y(x; W)|^2

The codes that GPTQ chose are where it starts, or those of GPTAQ (`gptaq`), fitted to the data that
steps see, where their error is smaller on the rest. A unit of work is a region of the program, such
as half a layer, and some steps of gradient descent (`jq.ir.autodiff.rounding`): its inputs are
those that the quantized regions in front of it give, its outputs are to be those of the float
program, each row weighed by how far it moves the program's output. After all regions comes a unit
that moves all codes, scales and what stays float (biases, norms) by the error of the output, but no
codes where its last turn found nothing better. What a unit found is kept if that error is smaller
on calibration data that no step sees; else its next turn takes smaller steps. The state is stored
after each unit: a run that was killed goes on from there, and so does a later one with more
minutes. Units are the same whenever they run; time only says which is the last."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from jq.artifact.keys import digest, program_digest
from jq.ir import Program
from jq.ir.autodiff.evaluate import Unsupported
from jq.ir.autodiff.regions import regions, whole
from jq.ir.autodiff.rounding import Codes, Floats, Learned, Sample, Stored, relative_error
from jq.ir.autodiff.walk import Rows, Walk
from jq.passes.base import LOG, PassContext, Recovery
from jq.passes.recovery._inputs import held_out, spread
from jq.passes.recovery._learned_codes import Parts, codes_of, learnable, stored
from jq.passes.recovery.gptaq import Gptaq
from jq.target.settings import FLOAT, Settings

SMALL = 1 << 16  # elements of what stays float and is learned


@dataclass
class State:
    """The best that is found so far; its `error`, relative and squared, of the output on held-out
    data, which `curve` has by seconds; of each unit the `rates` of its next turn and the `misses`,
    turns in a row that found nothing better; and how many `units` have run."""

    parts: Parts
    error: float
    rates: list[float]
    misses: list[int]
    units: int = 0
    seconds: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)

    def open(self, patience: int) -> bool:
        """True if a unit may find something yet."""
        return min(self.misses) < patience

    def packed(self) -> dict[str, np.ndarray]:
        about = {k: v for k, v in vars(self).items() if k != "parts"}
        arrays = {f"{n}:{part}": a for n, parts in self.parts.items() for part, a in parts.items()}
        return {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> "State":
        parts: Parts = {}
        for key, array in arrays.items():
            name, _, part = key.rpartition(":")
            if name:
                parts.setdefault(name, {})[part] = array
        about = json.loads(bytes(arrays["about"]))
        about["curve"] = [(float(a), float(b)) for a, b in about["curve"]]
        return State(parts, **about)


class Learn(Recovery):
    """Runs where the setting `minutes` is not 0. Only weights whose codes have fewer than 8 bits; a
    program whose gradient cannot be had is left alone, with a warning.

    Options: `steps` of a unit, of `batch` samples each; `rate`, by what part of a code a step moves
    it, at first (units that find nothing halve it); `scale_rate`, by what share a step of Adam
    moves a scale; `memory`, bytes of a region; `patience`, turns of a unit that find nothing
    better, in a row, before it gets none."""

    steps: int = 32
    batch: int = 8
    rate: float = 0.01
    scale_rate: float = 1e-3
    memory: int = 2 << 30
    patience: int = 2

    def chosen(self, settings: Settings) -> bool:
        return settings.minutes > 0

    def recover(self, program: Program, cx: PassContext) -> bool:
        if not learnable(program, cx):
            if cx.settings.activations.format == FLOAT:  # else rotations were tried
                self.skip(program, "no weight is stored in codes of less than 8 bits")
            return False
        try:
            state = _Run(self, program, cx).until(60 * cx.settings.minutes)
        except Unsupported as reason:
            self.skip(program, str(reason))
            return False
        take_over(program, state.parts)
        points = {*spread(len(state.curve), 11), len(state.curve) - 1}
        shown = [f"{s / 60:.1f}: {e:.3g}" for s, e in (state.curve[i] for i in sorted(points))]
        program.tell(f"learn: error of the output on held-out data by minutes {', '.join(shown)}")
        return state.units > 0


def take_over(program: Program, found: Parts) -> None:
    """Gives the program what was found: stored parts, and values that stay float."""
    for name, parts in found.items():
        if "value" in parts:
            program.weights[name] = parts["value"]
        else:
            program.chosen[name] = parts


class _Run:
    """The units of a program, one after the other."""

    def __init__(self, how: Learn, program: Program, cx: PassContext) -> None:
        self.how, self.program, self.cx = how, program, cx
        self.data = [list(x) for x in cx.data or ()]
        held = held_out(len(self.data))
        train = sorted(set(range(len(self.data))) - {*held}) or held
        self.first = learnable(program, cx)
        self.names = list(self.first)
        weights = {n: np.asarray(w) for n, w in program.weights.items()}
        floats = {n: {"value": w} for n, w in weights.items() if self._stays(n, w)}
        self.first |= floats
        codes = self._codes(self.first)
        every = whole(program, self.first)
        self.parts = [Learned(r, weights, codes) for r in regions(program, self.names, how.memory)]
        fits = every.bytes <= how.memory
        self.end = Learned(every, weights, codes)
        self.units = [*self.parts, *([self.end] if fits else [])]
        self.held, self.train = (Walk(self.parts, [self.data[i] for i in n]) for n in (held, train))
        self.whole = self.end.samples(self.train.data)
        self.gains = Rows(program, [p.region for p in self.parts], [self.data[i] for i in train])
        self.key = [program_digest(program), f"{how!r}", digest(self.first), "learn"]

    def _stays(self, name: str, weight: np.ndarray) -> bool:
        """True for a bias and the like, which stays float."""
        small = weight.size <= SMALL and weight.dtype == np.float32
        return small and name not in self.cx.plan.weights and self.program.chosen.get(name) is None

    def until(self, seconds: float) -> State:
        """The state after the last unit that began before so many seconds."""
        state, store = self._begin(), self.cx.results
        start = time.monotonic() - state.seconds
        while state.open(self.how.patience) and time.monotonic() - start < seconds:
            number = state.units % len(self.units)
            if state.misses[number] < self.how.patience:
                self._unit(state, number)
                state.seconds = time.monotonic() - start
                state.curve.append((state.seconds, state.error))
                LOG.info("learn: %.1f min, error %.4g", state.seconds / 60, state.error)
            state.units += 1
            self.cx.report(min(1.0, (time.monotonic() - start) / seconds))
            if store is not None:
                store.put(self.key, state.packed())
        return state

    def _begin(self) -> State:
        """The state of an earlier run, or that of the codes that were chosen, or of GPTAQ's."""
        store, count = self.cx.results, len(self.units)
        if store is not None and (found := store.get(self.key)) is not None:
            return State.of(found)
        state = State(self.first, self._error(self.first), [self.how.rate] * count, [0] * count)
        state.curve.append((0.0, state.error))
        if self.cx.settings.recovery is True:
            copy = self.program.clone()
            copy.chosen = {n: p for n, p in copy.chosen.items() if n not in self.first}
            Gptaq().recover(copy, self.cx)
            parts = self.first | {n: p for n, p in copy.chosen.items() if n in self.first}
            if (error := self._error(parts)) < state.error:
                state.parts, state.error = parts, error
            state.curve.append((0.0, state.error))
        return state

    def _unit(self, state: State, unit: int) -> None:
        """One unit, whose result is taken over where it is better."""
        learned, codes = self.units[unit], self._codes(state.parts)
        if not learned.region.weights:
            state.misses[unit] = self.how.patience
            return
        learned.restart(codes)
        last = learned is self.end
        if not last:
            self.train.go(unit, codes)
        found = learned.descend(
            self.whole if last else partial(self._inner, unit),
            self._batches(state.units),
            rate=0.0 if last and state.misses[unit] else state.rates[unit],
            scale_rate=self.how.scale_rate * state.rates[unit] / self.how.rate,
        )
        parts, planned = dict(state.parts), self.cx.plan.weights
        for name, new in found.items():
            before = codes[name]
            if isinstance(before, Codes):
                new = stored(new, before, parts[name], planned[name])
            parts[name] = new
        error = self._error(parts)
        if error < state.error:
            state.parts, state.error, state.misses[unit] = parts, error, 0
        else:
            state.rates[unit] /= 2
            state.misses[unit] += 1

    def _inner(self, number: int, i: int) -> Sample:
        """Sample `i` of a region: what quantized regions give it, and what float ones do."""
        learned, (ours, theirs) = self.parts[number], self.train.at(i)
        return ours, learned.outputs(learned.own, theirs), self.gains.of(i, number)

    def _batches(self, unit: int) -> list[list[int]]:
        """Samples to train with, drawn anew for each unit."""
        count, rng = len(self.train.data), np.random.default_rng(unit)
        size = min(self.how.batch, count)
        rounds = -(-self.how.steps * size // count)
        order = np.concatenate([rng.permutation(count) for _ in range(rounds)])
        return order[: self.how.steps * size].reshape(-1, size).tolist()

    def _codes(self, parts: Parts) -> Stored:
        planned = self.cx.plan.weights
        return {
            n: Floats(own["value"]) if "value" in own else codes_of(own, planned[n])
            for n, own in ((name, parts[name]) for name in self.first)
        }

    def _error(self, parts: Parts) -> float:
        """The relative squared error of the program's outputs on held-out data."""
        self.held.go(len(self.parts), self._codes(parts))
        return relative_error([self.held.at(i) for i in range(len(self.held.data))])
