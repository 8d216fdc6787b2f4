"""The mean error of every product is taken out of its bias.

    y = x W + b   ->   y' = x' W' + (b - E[x' W' - x W])

x' and W' are what the quantized program computes with, E the mean over the calibration data,
output channel by output channel (Nagel et al., "Data-Free Quantization Through Weight Equalization
and Bias Correction", 2019, section 4.2, with measured in place of assumed means). Each product is
looked at alone, on float inputs. Rows count by how much they move the output, so padding does not.
Part of a mean over few calls is chance, by which calls differ: it is shrunk by the share of that in
its square (James and Stein, "Estimation with Quadratic Loss", 1961)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jq.artifact.keys import digest
from jq.formats.arrays import Array
from jq.ir import Op, Program, at, dtype_of, ir, only_user, shape_of
from jq.ir.affine import compact, constant_of
from jq.ir.ops import Dims, rule_of
from jq.ir.ops.rules.convolution import Convolution
from jq.ir.ops.rules.dot_general import DotGeneral
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import LOG, PassContext, Recovery
from jq.passes.isolated import Isolation
from jq.passes.recovery import _inputs as inputs
from jq.passes.recovery.smooth import SAMPLES
from jq.planning.calibration.histogram import NUMPY_STATS, StatOps
from jq.planning.calibration.histogram import PROGRAM_STATS as OPS
from jq.planning.calibration.run import NUMBERS
from jq.planning.decisions import OpPlan
from jq.planning.moments.collect import Wanted, sensitivity
from jq.planning.moments.gains import total
from jq.planning.moments.inputs import other_axes
from jq.planning.operands import contractions, op_name
from jq.target.settings import Settings

F32 = np.float32
KNOWN = DotGeneral, Convolution  # `other_axes` knows their rows
# Of the rows of a call: their weighted errors, the squares of these, weights, and their squares.
Sums = tuple[np.ndarray, ...]
IMPORTANCE = ":importance"  # behind a name, that of the weights of its rows


@dataclass(frozen=True)
class Shift:
    """The error of one product: the mean of its error, f64 of the result's rank with 1 along its
    rows, and the share of that in the mean squared error."""

    mean: np.ndarray
    share: float


class BiasCorrection(Recovery):
    """Runs by default where activations have calibrated ranges, whose one step for large and small
    values shifts means, and corrects the biases that are there.

    Options: `share` of the squared error that the mean must have, for an `add` where there is no
    bias yet and the pass is named; `power` of the mean squared gradient of a row, which is its
    weight; 0: all alike."""

    optional = False
    share: float = 0.02
    power: float = 0.5

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return any(op.decision != "float" for op in cx.plan.ops)

    def chosen(self, settings: Settings) -> bool:
        named = isinstance(settings.recovery, tuple)
        return super().chosen(settings) and (named or settings.activations.calibrated)

    def recover(self, program: Program, cx: PassContext) -> bool:
        def found() -> dict[str, np.ndarray]:
            own = shifts(program, cx, self.power)
            return {f"{n}:{k}": np.asarray(v) for n, s in own.items() for k, v in vars(s).items()}

        known = cx.found(program, f"{self!r} {cx.plan.ops} {digest(program.chosen)}", found)
        names = [key.removesuffix(":mean") for key in known if key.endswith(":mean")]
        by_op = {n: Shift(known[f"{n}:mean"], float(known[f"{n}:share"])) for n in names}
        ops = {op_name(op): op for op, _ in contractions(program)}
        added = self.share if isinstance(cx.settings.recovery, tuple) else math.inf
        for name, shift in by_op.items():
            least = added if user_with_bias(program, ops[name]) is None else 0.0
            LOG.info("bias-correction: %s: %.1f %% of the error", name, 100 * shift.share)
            if shift.mean.any() and shift.share >= least:
                _add(program, ops[name], -shift.mean)
        program.drop_dead()
        return bool(by_op)


def shifts(program: Program, cx: PassContext, power: float) -> dict[str, Shift]:
    """Shifts by op: products of an activation and a weight, outside of loops."""
    copy = program.clone()
    plans = {p.name: p for p in cx.plan.ops if p.decision != "float"}
    wanted = _wanted(copy, plans)
    if not wanted:
        return {}
    stored = {f"{w}:{k}": v for w, parts in program.chosen.items() for k, v in parts.items()}
    isolation, results, data = Isolation(copy, stored), list[ir.Value](), cx.data or ()
    spread = {w.name: _Spread.of(op, w) for op, w in wanted}
    chosen = inputs.spread(len(data), SAMPLES["static"])
    # XLA would take longer to compile few sums than NumPy to add up.
    few = len(chosen) * sum(math.prod(s.shape) for s in spread.values()) <= NUMBERS
    for op, w in wanted:
        both = isolation.result(op, plans[w.name]), op.results[0]
        results += both if few else _measure(copy, *both, spread[w.name], w.name + IMPORTANCE)
    copy.return_values(results)
    run = XlaExecutable(copy)
    gradient = partial(sensitivity, program.clone(), [w for _, w in wanted])
    calls: dict[str, list[Sums]] = {w.name: [] for _, w in wanted}
    for done, i in enumerate(chosen, 1):
        weights = {name: np.ones(s.counted, F32) for name, s in spread.items()}
        gains = cx.gains.of(list(spread), i, data[i], gradient) if power else {}
        for name, g in gains.items():
            weights[name] = np.asarray(g).reshape(spread[name].counted) ** F32(power)
        run.bind({} if few else {name + IMPORTANCE: found for name, found in weights.items()})
        found = iter(run(*data[i]))
        for name, seen in calls.items():
            own, counted, sums = spread[name], weights[name], [next(found), next(found)]
            if few:
                with np.errstate(all="ignore"):
                    sums = own.sums(NUMPY_STATS, sums[0].astype(F32) - sums[1].astype(F32), counted)
            seen.append((*sums, *(own.count(counted**n) for n in (1, 2))))
        cx.report(done / len(chosen))
    return {name: _shift(seen) for name, seen in calls.items()}


def _shift(calls: Sequence[Sums]) -> Shift:
    """The mean as far as it is not chance, which calls differ by, or the rows of a single one."""
    errors, squares, counts, alone = (
        np.stack(part).astype(np.float64) for part in zip(*calls, strict=True)
    )
    count = np.maximum(counts.sum(0), 1e-30)
    mean, squared = errors.sum(0) / count, squares.sum(0) / count
    if len(calls) > 1:
        chance = np.square(errors - mean * counts).sum(0) * len(calls) / (len(calls) - 1)
    else:
        chance = (squared - mean**2) * alone[0]
    size = max(float((mean**2).sum()), 1e-300)
    mean *= max(0.0, 1 - float((chance / count**2).sum()) / size)
    return Shift(mean, min(1.0, float((mean**2).sum()) / max(float(squared.sum()), 1e-300)))


def _wanted(program: Program, plans: Mapping[str, OpPlan]) -> list[tuple[Any, Wanted]]:
    wanted_ops = []
    for op, rule in list(contractions(program)):
        plan = plans.get(op_name(op))
        if plan is None or op.operation.block != program.body or not isinstance(rule, KNOWN):
            continue
        weights = [i for i, p in plan.operands.items() if p.kind == "weight"]
        if len(weights) == 1 and dtype_of(op.results[0]).kind in "fV":
            wanted_ops.append((op, Wanted(plan.name, 1 - weights[0], ())))
    return wanted_ops


@dataclass(frozen=True)
class _Spread:
    """Axes of a result: `rows` are averaged over, `own` come from the weight. The rest, batch
    indices of a product, have means of their own and importance as rows (`counted`)."""

    shape: tuple[int, ...]
    own: tuple[int, ...]
    rows: tuple[int, ...]

    @staticmethod
    def of(op: Op, w: Wanted) -> "_Spread":
        shape, own = shape_of(op.results[0]), tuple(other_axes(op, w))
        batch = len(Dims.of(op).batch) if isinstance(rule_of(op), DotGeneral) else 0
        rows = tuple(a for a in range(len(shape)) if a not in own and a >= batch)
        return _Spread(shape, own, rows)

    @property
    def axes(self) -> list[int]:
        return [a for a in range(len(self.shape)) if a not in self.own]

    @property
    def counted(self) -> list[int]:
        return [self.shape[a] for a in self.axes]

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(1 if a in self.rows else n for a, n in enumerate(self.shape))

    def count(self, weights: np.ndarray) -> np.ndarray:
        """The sum of all rows' weights, of the result's rank."""
        wide = weights.reshape([1 if a in self.own else n for a, n in enumerate(self.shape)])
        return np.asarray(wide.sum(self.rows, dtype=np.float64, keepdims=True))

    def sums(self, ops: StatOps, error: Array, weights: Array) -> list[Array]:
        """Weighted sums of an error and of its square over the rows, of the result's rank, with the
        same bits on any number of threads."""
        weighted = ops.mul(error, ops.broadcast(weights, self.shape, self.axes))
        both = (weighted, ops.mul(weighted, error))
        return [ops.reshape(total(ops, v, self.rows), self.kept) for v in both]


def _measure(
    program: Program, quantized: ir.Value, result: ir.Value, spread: _Spread, name: str
) -> list[ir.Value]:
    """The sums of the error, by a weight of the program with this name."""
    with at(quantized.owner, after=True):
        error = OPS.sub(OPS.convert(quantized, F32), OPS.convert(result, F32))
        weights = program.add_weight(name, np.ones(spread.counted, F32))
        return spread.sums(OPS, error, weights)


def user_with_bias(program: Program, op: Op) -> tuple[Any, int, np.ndarray] | None:
    """The `add` of a constant that alone reads a result: it, the number of the constant operand,
    and its value with 1 along axes that it repeats itself along."""
    result = op.results[0]
    if (user := only_user(result, "stablehlo.add")) is None:
        return None
    number = 1 if user.operands[0] == result else 0
    old = constant_of(program, user.operands[number])
    return None if old is None else (user.operation, number, old)


def _add(program: Program, op: Op, vector: np.ndarray) -> None:
    """Adds a constant to a result, as part of its bias where it has one."""
    result, found = op.results[0], user_with_bias(program, op)
    if found is not None:
        user, number, old = found
        with at(user):
            user.operands[number] = _constant(program, op, old + vector)
        return
    with at(op, after=True):
        total = OPS.add(result, _constant(program, op, vector))
    result.replace_all_uses_except(total, [total.owner.operation])


def _constant(program: Program, op: Op, array: np.ndarray) -> ir.Value:
    result = op.results[0]
    array = compact(np.asarray(array)).astype(dtype_of(result))
    made = partial(program.add_weight, f"{op_name(op)}:bias")
    return OPS.spread(array, shape_of(result), made)
