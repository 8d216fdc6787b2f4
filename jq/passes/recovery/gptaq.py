"""GPTQ of weights of few bits that make up for the rounding of those in front of them.

Where rounded weights give a product x W inputs x', what comes closest to x W is x' W* of

    W* = W + (H' + ridge)^-1  sum over rows r of  weight(r) x'_r (x_r - x'_r)^T  W

H' being the sum of weight(r) x'_r x'_r^T: the H of x turns W around where inputs became larger
(Li et al., "GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration", 2025)."""

from collections.abc import Mapping

import numpy as np

from jq.base.system.threads import one_thread
from jq.formats import NUMPY, get_format
from jq.ir import shape_of
from jq.ir.autodiff.evaluate import Unsupported
from jq.ir.autodiff.regions import behind
from jq.ir.autodiff.rounding import Floats, Learned
from jq.ir.autodiff.walk import Walk
from jq.ir.ops import Dims, rule_of
from jq.ir.ops.rules.dot_general import DotGeneral
from jq.passes.base import LOG
from jq.passes.recovery._grids import bits_of
from jq.passes.recovery._inputs import spread
from jq.passes.recovery.gptq import Gptq, Task, narrow
from jq.planning.moments.collect import outermost, row_weights
from jq.planning.moments.gains import counted_rows, gram_of_rows
from jq.planning.moments.inputs import extent

RIDGE = 0.1  # times the mean of H's diagonal
ROWS = 2  # for each input, at least: fewer rows would be learned by heart
ROOM = 1 << 30  # bytes of the values of all samples that pass a cut


def toward(
    weight: np.ndarray, own: np.ndarray, cross: np.ndarray, rows: int, share: float
) -> np.ndarray | None:
    """A share of the way from `weight` f32[K, N] to W*, given H' and the sum of x'_r (x_r - x'_r)^T
    of so many rows, [K, K] both (or both as means); None where they do not say enough."""
    if rows < ROWS * len(own):
        return None
    ridge = RIDGE * max(float(np.trace(own)) / len(own), 1e-30)
    way = np.linalg.solve(own + ridge * np.eye(len(own)), cross @ weight)
    return (weight + share * way).astype(np.float32) if np.isfinite(way).all() else None


class Gptaq(Gptq):
    """Options: `earlier`, the share of W* - W that is added to a weight; others: `Gptq`."""

    optional = True
    earlier: float = 0.5

    def aims(self, task: Task) -> "Earlier | None":
        return Earlier(self, task) if narrow(task.solvable.values()) else None


class Earlier:
    """Weights of products without batch axes, in order; of batches, some where room is short."""

    def __init__(self, how: Gptaq, task: Task) -> None:
        self.how, self.cx, program, cx = how, task.cx, task.program, task.cx
        ops, data, batches = outermost(program), cx.data or (), how.batches_of(task)
        once = {n: r[0].wanted for n, r in task.uses.items() if isinstance(r, list) and not r[1:]}
        both = ((n, ops[w.name], w) for n, w in once.items())
        every = {n: (op, w, op.operands[w.operand]) for n, op, w in both}
        values = {value for *_, value in every.values()}
        regions, self.place, most = behind(program, cx.plan.weights, values)
        self.products = {
            n: (op, w, value)
            for n, (op, w, value) in every.items()
            if isinstance(rule_of(op), DotGeneral) and not Dims.of(op).batch
            if value in self.place and bits_of(cx.plan.weights[n]) < 8
        }
        self.batches = [batches[i] for i in spread(len(batches), max(1, ROOM // (2 * most + 1)))]
        self.count = len(batches)
        weights = {n: np.asarray(w) for n, w in program.weights.items()}
        self.values = {n: Floats(weights[n]) for n in cx.plan.weights}
        parts = [Learned(region, weights, self.values) for region in regions]
        self.walk = Walk(parts, [data[i] for i in self.batches])

    def put(self, name: str, parts: Mapping[str, np.ndarray]) -> None:
        """Takes in the stored parts of a weight."""
        enc = self.cx.plan.weights[name]
        self.values[name] = Floats(np.asarray(get_format(enc.format).decode(NUMPY, parts, enc)))

    def aim(self, name: str, weight: np.ndarray, gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The share of the way to W* of a weight f32[K, N], and H', once all in front are rounded;
        the weight and `gram`, H f64[K, K], where there is no way."""
        if name not in self.products:
            return weight, gram
        try:
            self.walk.go(max(self.walk.number, self.place[self.products[name][2]]), self.values)
        except Unsupported as reason:
            LOG.info("nothing makes up for what is rounded in front of %s: %s", name, reason)
            self.products = {}
            return weight, gram
        with one_thread():
            cross, own, rows = self._cross(name)
            found = toward(weight, own, cross, rows, self.how.earlier)
        return (weight, gram) if found is None else (found, own)

    def _cross(self, name: str) -> tuple[np.ndarray, np.ndarray, int]:
        """The sum of  weight(r) x'_r (x_r - x'_r)^T,  H', f64[K, K], and the number of rows."""
        op, w, value = self.products[name]
        e, known = extent(op, w), self.cx.gains.known if self.how.power else {}
        order = [*Dims.of(op).free(w.operand, len(shape_of(value))), *w.contracted]
        cross, own = np.zeros((2, e.width, e.width))
        waiting, seen = list[list[np.ndarray]](), 0
        every = list(zip(self.batches, self.walk.ours, self.walk.theirs, strict=True))
        # Gains of later batches may have had no room: weights of 1 would count for all others.
        counted = [batch for batch in every if (w.name, batch[0]) in known] or every
        for i, *both in counted:
            pair = [np.asarray(v[value], np.float32).transpose(order) for v in both]
            ours, theirs = (x.reshape(e.rows, e.width) for x in pair)
            count = row_weights(e, known.get((w.name, i)), self.how.power)
            seen += int((count > 0).sum())
            pair = [ours, theirs - ours]
            waiting.append([counted_rows(x, count, e.sequences, self.how.shared) for x in pair])
            if i == counted[-1][0] or sum(len(x) for x, _ in waiting) >= e.width:
                inputs, lost = map(np.concatenate, zip(*waiting, strict=True))
                cross, own = cross + gram_of_rows(inputs, lost), own + gram_of_rows(inputs)
                waiting = []
        share = self.count / len(counted)
        return cross * share, own * share, seen
