"""Scales of weights are tuned together, so that the program's output changes least.

    minimise over factors f  E |y(x; steps * scale * (1 + f)) - y(x; W)|^2 / |y(x; W)|^2

with the codes that another recovery pass chose. What that pass did layer by layer leaves errors of
different layers that add up; a few steps of gradient descent through the whole program turn them
against each other ("end-to-end training of quantization parameters": Chen et al., "EfficientQAT",
2024, section 3.3, with the float program's output in place of labels). Few steps and a small rate:
there are more scales than calibration data could determine.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from jq.artifact.keys import digest
from jq.formats import Encoding, get_format
from jq.formats.affine import affine_format, is_affine
from jq.formats.blocks import sizes
from jq.ir import Program
from jq.ir.autodiff.tuning import Blocks, Tuning, Unsupported
from jq.passes.base import PassContext, Recovery
from jq.passes.recovery._inputs import spread

LOG = logging.getLogger("jq")


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
        stored = {
            n: blocks_of(program.chosen[n], cx.plan.weights[n]) for n in _tunable(program, cx)
        }
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
        self, program: Program, cx: PassContext, stored: Mapping[str, Blocks]
    ) -> dict[str, np.ndarray]:
        """The tuned scales in their types; none where they are not better."""
        tuning, data = Tuning(program, stored), cx.data or ()
        factors = tuning.descend(
            data, rate=self.rate, epochs=self.epochs, batch=self.batch, report=cx.report
        )
        scales = {n: _rounded(b.scale, factors[n], cx.plan.weights[n]) for n, b in stored.items()}
        # What is compared is what will be stored.
        exact = {n: scales[n].astype(np.float32) / b.scale - 1 for n, b in stored.items()}
        some = [data[i] for i in spread(len(data), self.checks)]
        before, after = (tuning.error(f, some) for f in (tuning.zero(), exact))
        LOG.info("tune: error of the output %.3g, before %.3g", after, before)
        return scales if after < before else {}


def _tunable(program: Program, cx: PassContext) -> Sequence[str]:
    """Weights with chosen codes of few bits."""
    found = []
    for name, parts in program.chosen.items():
        fmt = cx.plan.weights[name].format
        if is_affine(fmt) and affine_format(fmt).bits < 8 and "codes" in parts:
            found.append(name)
    return found


def blocks_of(parts: dict[str, np.ndarray], enc: Encoding) -> Blocks:
    """The stored parts of a weight, as integers and their scales."""
    unit = parts | {"scale": np.ones_like(parts["scale"])}
    steps = get_format(enc.format).to_numpy(unit, enc).astype(np.int8)
    return Blocks(steps, parts["scale"].astype(np.float32), sizes(enc))


def _rounded(scale: np.ndarray, factor: np.ndarray, enc: Encoding) -> np.ndarray:
    """The tuned scale in its type; the old one where that holds no positive finite number."""
    new = (scale * (1 + np.asarray(factor))).astype(enc.scale_type)
    return np.where(np.isfinite(new) & (new > 0), new, scale.astype(enc.scale_type))
