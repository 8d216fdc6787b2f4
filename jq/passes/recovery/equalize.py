"""Channels between two layers are scaled, so that one range of activations serves all of them.

    y = W2 f(W1 x + b)   ->   y = (W2 diag(s)) f(diag(1/s) W1 x + b / s)

for f that is linear or positively homogeneous (ReLU, pooling, a depthwise convolution): cross-layer
equalization (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction", 2019, section 4.1), here with the ranges of the activations between the layers, of
which all channels share one scale: s = a^t / w^(1 - t), a and w the largest activations and weights
of a channel. The factors are powers of two: the float program computes what it did, to the bit.

Each value is scaled alone, which is kept where the outputs of calibration data that gave no range
come closer to the float model's."""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.formats.arrays import Array, ArrayOps
from jq.ir import OPS, Program, at, dtype_of, ir, number_kind, shape_of, stablehlo
from jq.ir.autodiff.rounding import relative_error
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import LOG, PassContext, Recovery
from jq.passes.recovery._inputs import held_out, planned_weights
from jq.passes.recovery._product_inputs import Input, find_inputs, scale_all
from jq.passes.recovery._smoothing import QUIET, heard
from jq.passes.recovery.smooth import EQUALIZED, SAMPLES
from jq.planning.calibration.run import NUMBERS

# Trials of factors for the channels of a value: an estimate, and the error at the outputs.
PARTS = ("step", "low", "high")
Calls = Sequence[Sequence[np.ndarray]]


@dataclass(frozen=True)
class Trial:
    """A value whose channels may be scaled: their ranges and reach, and the weights that read."""

    input: Input
    low: np.ndarray
    high: np.ndarray
    extent: np.ndarray
    weights: Mapping[str, tuple[np.ndarray, Encoding]]
    bits: int

    def factors(self, strength: float) -> np.ndarray:
        """Powers of two, whose mean exponent is about 0."""
        largest, _ = self._channels
        largest = np.maximum(largest, max(largest.max() / 2**20, 1e-30))
        exponents = strength * np.log2(self.extent) - (1 - strength) * np.log2(largest)
        return np.asarray(np.exp2(np.clip(np.rint(exponents - exponents.mean()), -20, 20)))

    def grid(self, s: np.ndarray) -> dict[str, np.ndarray]:
        """The step of each channel and its ends, where x / s has one scale."""
        low, high = min(0.0, (self.low / s).min()), max(0.0, (self.high / s).max())
        step = (high - low or 1.0) / ((1 << self.bits) - 1)
        return dict(zip(PARTS, np.outer([step, low, high], s).astype(np.float32), strict=True))

    def noise(self, s: np.ndarray) -> float:
        """The estimated error of what reads the value: that of rounding it."""
        _, squares = self._channels
        return float(np.square(self.grid(s)["step"].astype(np.float64)) @ squares)

    @cached_property
    def _channels(self) -> tuple[np.ndarray, np.ndarray]:
        """The largest magnitude and the sum of squares of each channel's weights."""
        largest, squares = np.zeros((2, self.input.width))
        for name, (w, _) in self.weights.items():
            ids = np.broadcast_to(self.input.channels[name], w.shape).reshape(-1)
            np.maximum.at(largest, ids, np.abs(w).reshape(-1))
            squares += np.bincount(ids, np.square(w).reshape(-1), self.input.width)
        return largest, squares

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

    def __init__(
        self, program: Program, trials: Mapping[str, Trial], calls: Calls, reference: XlaExecutable
    ) -> None:
        self._trials, self._calls, copy = trials, calls, program.clone()
        for i in find_inputs(copy):
            if (name := i.name) in trials:
                _round(copy, i, name)
        self._run, count = XlaExecutable(copy), len(program.outputs)
        self._dtypes = {name: w.dtype for name, w in copy.weights.items()}
        self._references = [reference(*call)[:count] for call in calls]
        for name, trial in trials.items():
            self.bind(name, np.ones(trial.input.width))

    def bind(self, name: str, s: np.ndarray) -> None:
        trial = self._trials[name]
        arrays = {f"{name}:{k}": v for k, v in trial.grid(s).items()} | trial.rounded(s)
        self._run.bind({n: a.astype(self._dtypes[n]) for n, a in arrays.items()})

    def error(self) -> float:
        """The squared error over the square of outputs of floats, its mean over them and calls."""
        found = (self._run(*call) for call in self._calls)
        return relative_error(zip(found, self._references, strict=True))


def _round(program: Program, i: Input, name: str) -> None:
    with at(i.readers[0][0]):
        vectors = [program.add_weight(f"{name}:{k}", np.ones(i.width, np.float32)) for k in PARTS]
        vectors = [OPS.convert(v, OPS.dtype(i.value)) for v in vectors]
        step, low, high = (OPS.broadcast(v, shape_of(i.value), [i.axis]) for v in vectors)
        inside = OPS.minimum(OPS.maximum(i.value, low), high)
        codes = stablehlo.round_nearest_even(stablehlo.divide(inside, step))
        value = stablehlo.multiply(codes, step)
    for op, operand in i.readers:
        op.operation.operands[operand] = value


def _ends(ops: ArrayOps, x: Array, axis: int) -> list[Array]:
    """The smallest and the largest number of each channel."""
    others = [a for a in range(len(ops.shape(x))) if a != axis]
    return [ops.reduce_min(x, others), ops.reduce_max(x, others)]


def extents_of(
    program: Program, names: Container[str], calls: Calls
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]], XlaExecutable]:
    """The smallest and the largest number of each channel, by name, and how far it reaches in other
    calls: as far as here, if it does about the same in all (`heard`); and what gave them, behind
    the outputs."""
    copy = program.clone()
    there = [i for i in find_inputs(copy) if i.name in names]
    numbers = len(calls) * sum(math.prod(shape_of(i.value)) for i in there)
    few = numbers <= NUMBERS  # XLA would take longer to compile their ends than NumPy to find them
    values: list[ir.Value] = []
    for i in there:
        with at(i.readers[0][0]):
            values += [i.value] if few else _ends(OPS, i.value, i.axis)
    copy.return_values([*copy.returned, *values])
    copy.drop_dead()
    run = XlaExecutable(copy)
    made = [run(*call)[len(copy.outputs) :] for call in calls]
    if few:
        pairs = [zip(there, arrays, strict=True) for arrays in made]
        made = [[end for i, x in own for end in _ends(NUMPY, x, i.axis)] for own in pairs]
    found = zip(*made, strict=True)
    seen = [np.array(ends, np.float64).reshape(len(calls), -1) for ends in found]
    reach = {}
    for i, lows, highs in zip(there, seen[::2], seen[1::2], strict=True):
        extents = np.maximum(-lows, highs)  # [calls, channels]
        most, least = extents.max(0), extents.min(0)
        steady = (least * QUIET >= most) & (least > 0) & (len(calls) > 1)
        extent = np.where(steady, most, heard(most, len(calls)))
        reach[i.name] = lows.min(0), highs.max(0), extent
    return reach, run


class Equalize(Recovery):
    """Options: `strengths`, values of t that are tried; `promise`, how many times smaller the
    estimated error must be for a value to be measured; `gain`, how many times smaller the measured
    error must be for it to be scaled: the steps that follow change it, too."""

    optional, in_ranges = False, True
    strengths: tuple[float, ...] = (0.5, 0.75, 1.0)
    promise: float = 1.5
    gain: float = 2.0

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return any(number_kind(dtype_of(y)) == "f" for y in program.returned)

    def recover(self, program: Program, cx: PassContext) -> bool:
        planned = planned_weights(program, cx)
        stored = [i for i in find_inputs(program) if i.channels.keys() <= planned.keys()]
        inputs = {i.name: i for i in stored if _divided(program, i)}
        found: Mapping[str, np.ndarray]
        if cx.known_smoothing is None:
            what = f"{self!r} {cx.settings.activations.format} {planned} {list(inputs)}"
            with np.errstate(all="ignore"):  # calibration refuses what is not finite
                found = cx.found(program, what, lambda: self._search(program, cx, inputs, planned))
        else:
            given = cx.known_smoothing.items()
            found = {n.removeprefix(EQUALIZED): s for n, s in given if n.startswith(EQUALIZED)}
        return scale_all(program, inputs, found, EQUALIZED)

    def _search(
        self,
        program: Program,
        cx: PassContext,
        inputs: Mapping[str, Input],
        planned: Mapping[str, Encoding],
    ) -> dict[str, np.ndarray]:
        assert cx.data
        held = held_out(len(cx.data))
        calls = [cx.data[i] for i in held]
        bits = get_format(cx.settings.activations.format).integer_bits or 8
        seen = [x for i, x in enumerate(cx.data) if i not in held][: SAMPLES["static"]] or calls
        trials = {}
        extents, reference = extents_of(program, inputs, seen)
        for name, ends in extents.items():
            i = inputs[name]
            weights = {n: (np.asarray(program.weights[n], float), planned[n]) for n in i.channels}
            trials[name] = Trial(i, *ends, weights, bits)
        best = {n: min(map(t.factors, self.strengths), key=t.noise) for n, t in trials.items()}
        ones = {name: np.ones_like(s) for name, s in best.items()}
        promising = [
            n for n, t in trials.items() if t.noise(ones[n]) > self.promise * t.noise(best[n])
        ]
        if not promising:
            return {}
        measured = Measured(program, trials, calls, reference)
        kept, error = {}, measured.error()
        for done, name in enumerate(promising, 1):
            measured.bind(name, best[name])
            now = measured.error()
            LOG.info("equalize: %s: error / %.2f", name, error / max(now, 1e-300))
            if now * self.gain < error:
                kept[name], error = best[name].astype(np.float32), now
            else:
                measured.bind(name, ones[name])
            cx.report(done / len(promising))
        return kept


def _divided(program: Program, i: Input) -> bool:
    """True where weights of other ops can divide the value."""
    edits = i.edits(program, np.full(i.width, 2.0))
    return edits is not None and not edits.weights.keys() & i.channels.keys()
