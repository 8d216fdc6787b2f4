"""Scales of weights are tuned together, so that the program's output changes least.

    minimise over factors f  E |y(x; steps * scale * (1 + f)) - y(x; W)|^2 / |y(x; W)|^2

with the codes that another recovery pass chose. What that pass did layer by layer leaves errors of
different layers that add up; a few steps of gradient descent through the whole program turn them
against each other ("end-to-end training of quantization parameters": Chen et al., "EfficientQAT",
2024, section 3.3, with the float program's output in place of labels). Few steps and a small rate:
there are more scales than calibration data could determine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from jq.artifact.keys import digest
from jq.formats.affine import affine_format, is_affine
from jq.ir import Program
from jq.ir.autodiff.evaluate import Unsupported
from jq.ir.autodiff.regions import whole
from jq.ir.autodiff.rounding import Codes, Learned
from jq.passes.base import LOG, PassContext, Recovery
from jq.passes.recovery._inputs import spread
from jq.passes.recovery.learn import codes_of, held


class Tune(Recovery):
    """Tunes scales; they stay as they are where the error on calibration data gets no smaller.

    Only weights that another pass chose codes of fewer than 8 bits for; a program whose gradient
    cannot be had is left alone, with a warning.

    Options:

    rate: by what share a step of Adam moves a scale, at first.
    epochs: how often all data are seen.
    batch: samples to a step.
    checks: samples that the error is compared on.
    """

    rate: float = 1e-3
    epochs: int = 4
    batch: int = 8
    checks: int = 32

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return bool(_tunable(program, cx))

    def recover(self, program: Program, cx: PassContext) -> bool:
        stored = {n: codes_of(program.chosen[n], cx.plan.weights[n]) for n in _tunable(program, cx)}
        what = f"{self!r} {digest({name: program.chosen[name] for name in sorted(stored)})}"
        try:
            scales = cx.found(program, what, lambda: self._scales(program, cx, stored))
        except Unsupported as reason:
            self.skip(program, str(reason))
            return False
        for name, scale in scales.items():
            program.chosen[name] = program.chosen[name] | {"scale": scale}
        return bool(scales)

    def _scales(
        self, program: Program, cx: PassContext, stored: Mapping[str, Codes]
    ) -> dict[str, np.ndarray]:
        """The tuned scales in their types; none where they are not better."""
        data, weights = cx.data or (), {n: np.asarray(w) for n, w in program.weights.items()}
        learned = Learned(whole(program, stored), weights, stored)
        sample, order = learned.samples(data), np.random.default_rng(0)
        calls = [int(i) for _ in range(self.epochs) for i in order.permutation(len(data))]
        batches = [calls[i : i + self.batch] for i in range(0, len(calls), self.batch)]
        found = learned.descend(sample, batches, rate=0.0, scale_rate=self.rate, report=cx.report)
        planned, some = cx.plan.weights, spread(len(data), self.checks)
        scales = {n: held(found[n]["scale"], codes, planned[n]) for n, codes in stored.items()}
        # What is compared is what will be stored.
        tuned = {n: replace(codes, scale=scales[n]) for n, codes in stored.items()}
        after, before = (learned.error(codes, map(sample, some)) for codes in (tuned, stored))
        LOG.info("tune: error of the output %.3g, before %.3g", after, before)
        kept = {n: scale.astype(planned[n].scale_type) for n, scale in scales.items()}
        return kept if after < before else {}


def _tunable(program: Program, cx: PassContext) -> Sequence[str]:
    """Weights with chosen codes of few bits."""
    found = []
    for name, parts in program.chosen.items():
        fmt = cx.plan.weights[name].format
        if is_affine(fmt) and affine_format(fmt).bits < 8 and "codes" in parts:
            found.append(name)
    return found
