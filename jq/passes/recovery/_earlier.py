"""Makes up for the rounding of weights in front: a product aims at what float inputs would give.

Where they give a product x W rounded inputs x', what comes closest to x W is x' W* of

    W* = W + (H + ridge)^-1  sum over rows r of  weight(r) x'_r (x_r - x'_r)^T  W

(Li et al., "GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration", 2025).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from jq.base.system.threads import one_thread
from jq.formats import NUMPY, get_format
from jq.ir import Program, shape_of
from jq.ir.autodiff.evaluate import Unsupported
from jq.ir.autodiff.regions import behind
from jq.ir.autodiff.rounding import Floats, Learned
from jq.ir.autodiff.walk import Walk
from jq.ir.ops import Dims, rule_of
from jq.ir.ops.rules.dot_general import DotGeneral
from jq.passes.base import LOG, PassContext
from jq.passes.recovery._inputs import Use, spread
from jq.planning.moments.collect import outermost, row_weights
from jq.planning.moments.gains import counted_rows, gram_of_rows
from jq.planning.moments.inputs import extent

RIDGE = 0.1  # times the mean of H's diagonal
ROOM = 1 << 30  # bytes of the values of all samples that pass a cut


class Earlier:
    """The weights of products, in the order of the program."""

    def __init__(
        self, program: Program, cx: PassContext, uses: Mapping[str, Use], batches: Sequence[int]
    ) -> None:
        """Args:
        uses: by weight; only products without batch axes count.
        batches: the numbers of those to take, or of some of them where room is short."""
        ops, data, self.cx = outermost(program), cx.data or (), cx
        found = {n: (ops[use.wanted.name], use.wanted) for n, use in uses.items()}
        every = {n: (op, w, op.operands[w.operand]) for n, (op, w) in found.items()}
        regions, self.place, most = behind(
            program, cx.plan.weights, {v for *_, v in every.values()}
        )
        self.products = {
            n: (op, w, value)
            for n, (op, w, value) in every.items()
            if isinstance(rule_of(op), DotGeneral) and not Dims.of(op).batch and value in self.place
        }
        self.batches = [batches[i] for i in spread(len(batches), max(1, ROOM // (2 * most + 1)))]
        self.times = len(batches) / len(self.batches)
        weights = {n: np.asarray(w) for n, w in program.weights.items()}
        self.values = {n: Floats(weights[n]) for n in cx.plan.weights}
        parts = [Learned(region, weights, self.values) for region in regions]
        self.walk = Walk(parts, [data[i] for i in self.batches])

    def put(self, name: str, parts: Mapping[str, np.ndarray]) -> None:
        """Takes in the stored parts of a weight."""
        enc = self.cx.plan.weights[name]
        self.values[name] = Floats(np.asarray(get_format(enc.format).decode(NUMPY, parts, enc)))

    def aim(
        self, name: str, weight: np.ndarray, gram: np.ndarray, power: float, shared: float
    ) -> np.ndarray:
        """W* of a weight f32[K, N], once all in front are rounded; the weight where it has none.

        Args:
            gram: H.
            power, shared: as `jq.planning.moments.collect.collect` has them.
        """
        if name not in self.products:
            return weight
        try:
            self.walk.go(max(self.walk.number, self.place[self.products[name][2]]), self.values)
        except Unsupported as reason:
            LOG.info("nothing makes up for what is rounded in front of %s: %s", name, reason)
            self.products = {}
            return weight
        mean = max(float(np.trace(gram)) / len(gram), 1e-30)
        with one_thread():
            change = self._cross(name, power, shared) @ weight
            found = weight + np.linalg.solve(gram + RIDGE * mean * np.eye(len(gram)), change)
        return found if np.isfinite(found).all() else weight

    def _cross(self, name: str, power: float, shared: float) -> np.ndarray:
        """The sum of  weight(r) x'_r (x_r - x'_r)^T,  f64[K, K]."""
        op, w, value = self.products[name]
        e, known = extent(op, w), self.cx.gains.known
        order = [*Dims.of(op).free(w.operand, len(shape_of(value))), *w.contracted]
        total, waiting = np.zeros((e.width, e.width)), list[list[np.ndarray]]()
        for i, *both in zip(self.batches, self.walk.ours, self.walk.theirs, strict=True):
            ours, theirs = (
                np.asarray(v[value], np.float32).transpose(order).reshape(e.rows, e.width)
                for v in both
            )
            count = row_weights(e, known.get((w.name, i)) if power else None, power)
            rows = [counted_rows(x, count, e.sequences, shared) for x in (ours, theirs - ours)]
            waiting.append(rows)
            if i == self.batches[-1] or sum(len(x) for x, _ in waiting) >= e.width:
                total += gram_of_rows(*map(np.concatenate, zip(*waiting, strict=True)))
                waiting = []
        return total * self.times
