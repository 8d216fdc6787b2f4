"""Trials of factors for the channels of a value: an estimate, and the error at the outputs."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.ir import OPS, Program, at, shape_of, stablehlo
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.recovery._product_inputs import Input, find_inputs

FAR = 2.0**-20  # of the largest channel: one that is smaller counts as that
Calls = Sequence[Sequence[np.ndarray]]


@dataclass(frozen=True)
class Trial:
    """A value whose channels may be scaled: their ranges, and the weights that read them."""

    input: Input
    low: np.ndarray
    high: np.ndarray
    weights: Mapping[str, tuple[np.ndarray, Encoding]]
    bits: int

    def factors(self, strength: float) -> np.ndarray:
        """Powers of two, whose mean exponent is about 0."""
        extent, largest = np.maximum(-self.low, self.high), np.zeros(self.input.width)
        for name, (w, _) in self.weights.items():
            ids = np.broadcast_to(self.input.channels[name], w.shape)
            np.maximum.at(largest, ids.reshape(-1), np.abs(w).reshape(-1))
        extent, largest = (np.maximum(v, max(FAR * v.max(), 1e-30)) for v in (extent, largest))
        exponents = strength * np.log2(extent) - (1 - strength) * np.log2(largest)
        return np.asarray(np.exp2(np.clip(np.rint(exponents - exponents.mean()), -20, 20)))

    def step(self, s: np.ndarray) -> np.ndarray:
        """The step of each channel, where x / s has one scale."""
        width = max(0.0, (self.high / s).max()) - min(0.0, (self.low / s).min())
        return np.asarray(s * (width or 1.0) / ((1 << self.bits) - 1), np.float32)

    def noise(self, s: np.ndarray) -> float:
        """The estimated error of what reads the value: that of rounding it."""
        squares = np.zeros(self.input.width)
        for name, (w, _) in self.weights.items():
            ids = np.broadcast_to(self.input.channels[name], w.shape).reshape(-1)
            squares += np.bincount(ids, np.square(w).reshape(-1), self.input.width)
        return float(np.square(self.step(s).astype(np.float64)) @ squares)

    def rounded(self, s: np.ndarray) -> dict[str, np.ndarray]:
        """The weights, rounded after they were multiplied by s."""
        found = {}
        for name, (w, enc) in self.weights.items():
            factor, fmt = s[self.input.channels[name]], get_format(enc.format)
            codes = fmt.encode((w * factor).astype(np.float32), enc)
            found[name] = np.asarray(fmt.decode(NUMPY, codes, enc)) / factor
        return found


class Measured:
    """A copy of a program in which the values of trials are rounded, and what reads them."""

    def __init__(self, program: Program, trials: Mapping[str, Trial], calls: Calls) -> None:
        self._trials, self._calls, copy = trials, calls, program.clone()
        for i in find_inputs(copy):
            if (name := i.name) in trials:
                _round(copy, i, name)
        reference, self._run = XlaExecutable(program), XlaExecutable(copy)
        self._dtypes = {name: w.dtype for name, w in copy.weights.items()}
        self._references = [reference(*call) for call in calls]
        for name, trial in trials.items():
            self.bind(name, np.ones(trial.input.width))

    def bind(self, name: str, s: np.ndarray) -> None:
        trial = self._trials[name]
        arrays = {f"{name}:step": trial.step(s), **trial.rounded(s)}
        self._run.bind({n: a.astype(self._dtypes[n]) for n, a in arrays.items()})

    def error(self) -> float:
        """Noise over signal, summed over outputs of floats."""
        total = 0.0
        pairs = zip(self._references, (self._run(*call) for call in self._calls), strict=True)
        for reference, found in pairs:
            for r, y in zip(reference, found, strict=True):
                if r.dtype.kind in "fV" and r.size:
                    r, y = r.astype(np.float64), y.astype(np.float64)
                    finite = np.isfinite(r)
                    signal = np.square(r[finite]).sum() or 1.0
                    total += float(np.square(r[finite] - y[finite]).sum() / signal)
        return total


def _round(program: Program, i: Input, name: str) -> None:
    with at(i.readers[0][0]):
        steps = program.add_weight(f"{name}:step", np.ones(i.width, np.float32))
        step = OPS.broadcast(OPS.convert(steps, OPS.dtype(i.value)), shape_of(i.value), [i.axis])
        codes = stablehlo.round_nearest_even(stablehlo.divide(i.value, step))
        value = stablehlo.multiply(codes, step)
    for op, operand in i.readers:
        op.operation.operands[operand] = value


def extents_of(
    program: Program, names: Container[str], calls: Calls
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The smallest and the largest number of each channel, by name."""
    copy = program.clone()
    there = [i for i in find_inputs(copy) if i.name in names]
    values = []
    for i in there:
        axes = [a for a in range(len(shape_of(i.value))) if a != i.axis]
        with at(i.readers[0][0]):
            values += [OPS.reduce_min(i.value, axes), OPS.reduce_max(i.value, axes)]
    copy.return_values(values)
    copy.drop_dead()
    run = XlaExecutable(copy)
    found = zip(*(run(*call) for call in calls), strict=True)
    seen = [np.array(ends, np.float64).reshape(len(calls), -1) for ends in found]
    lows, highs = (s.min(0) for s in seen[::2]), (s.max(0) for s in seen[1::2])
    return dict(zip((i.name for i in there), zip(lows, highs, strict=True), strict=True))
