"""Channels between two layers are scaled, so that one range of activations serves all of them.

    y = W2 f(W1 x + b)   ->   y = (W2 diag(s)) f(diag(1/s) W1 x + b / s)

for f that is linear or positively homogeneous (ReLU, pooling, a depthwise convolution): cross-layer
equalization (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction", 2019, section 4.1), here with the ranges of the activations between the layers, of
which all channels share one scale: s = a^t / w^(1 - t), a and w the largest activations and weights
of a channel. The factors are powers of two: the float program computes what it did, to the bit.

Each value is scaled alone, which is kept where the outputs of calibration data that gave no range
come closer to the float model's."""

from collections.abc import Mapping

import numpy as np

from jq.formats import Encoding, get_format
from jq.ir import Program, dtype_of, number_kind
from jq.passes.base import LOG, PassContext, Recovery
from jq.passes.recovery._channel_trials import Measured, Trial, extents_of
from jq.passes.recovery._inputs import held_out, planned_weights
from jq.passes.recovery._product_inputs import Input, find_inputs, scale_all
from jq.passes.recovery.smooth import EQUALIZED, SAMPLES


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
        inputs = {
            i.name: i
            for i in find_inputs(program)
            if i.channels.keys() <= planned.keys() and _divided(program, i)
        }
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
