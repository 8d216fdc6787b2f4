"""A transposed convolution becomes one of a smaller window, and a pixel shuffle.

    convolution %x[1,n,n,i], %w[2,2,i,o], window = {pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]}
    ->
    %y = convolution %x, %w'[1,1,i,4*o]                      // %w', a new weight of the same name
    reshape (transpose (reshape %y[1,n,n,2,2,o]))[1,2*n,2*n,o]

Of an input with d - 1 zeros between its elements, a window of k taps meets every d-th tap only:
which ones, is the same at every d-th position of the result. Each of these phases has ceil(k / d)
taps and becomes a set of output channels (Shi et al., arXiv:1609.07009); where d does not divide k,
the taps that are missing are zeros. A vector that is added to the result is added before the
shuffle. The sum may have another order.

Not for a device that has transposed convolutions, and no reshape of as many axes. Not in groups,
not with strides or a dilated window, and not where the weight is computed from the inputs, is part
of a loop's stack, or came quantized: what is stored stays as it is."""

from dataclasses import dataclass

import numpy as np

from jq.ir import OPS, Op, Program, at, dtype_name, dtype_of, ir, shape_of, stablehlo
from jq.ir.affine import forwards
from jq.ir.build import NAME, i64_array, integers, like, string_attr
from jq.ir.ops.layout import CONVOLUTION, Layout, is_plain, padding_of, turned_axes
from jq.passes.base import Pass, PassContext
from jq.passes.prepare.fold_weights import Constant, evaluate_all
from jq.target.device_table import Device


class SplitUpsampling(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        constant, kernels = Constant(program), list[tuple[str, ir.Value]]()
        for op in [op for op in program.walk() if Layout.match(op)]:
            if not _shuffles(op, cx.target.device):
                continue
            names = constant.weights(op.operands[1])
            if names and _fits(program, op):
                largest = max(sorted(names), key=lambda n: program.weights[n].size)
                kernels.append((largest, _Split.of(op).rewrite(program)))
        if not kernels:
            return False
        arrays, given = evaluate_all(program, [value for _, value in kernels]), dict[str, str]()
        for name, value in kernels:
            weight = program.add_weight(name, arrays[value])
            value.replace_all_uses_with(weight)
            given[program.weight_name(weight) or name] = name
        program.drop_dead()
        program.rename_weights(given)
        return True


def _shuffles(op: Op, device: Device) -> bool:
    """True if the device moves the phases to their positions, or has no use for the op as it is."""
    layout, ranks = Layout.of(op), []
    for kind in ("reshape", "transpose"):
        most = device.of(kind).max_rank
        ranks.append(most is None or most >= 2 + 2 * len(layout.output_spatial))
    return all(ranks) or not device.of(CONVOLUTION).transposed


def _fits(program: Program, op: Op) -> bool:
    layout, result = Layout.of(op), op.results[0]
    sizes = [shape_of(op.operands[0])[a] for a in layout.input_spatial]
    window = [shape_of(op.operands[1])[a] for a in layout.kernel_spatial]
    return (
        op.operation.block == program.body
        and dtype_name(dtype_of(result)) in ("f32", "bf16", "f16")
        and max(integers(op, "lhs_dilation"), default=1) > 1
        and max(integers(op, "window_strides"), default=1) == 1
        and max(integers(op, "rhs_dilation"), default=1) == 1
        and is_plain(op)
        and min((*shape_of(result), *sizes, *window)) > 0
    )


@dataclass(frozen=True)
class _Axis:
    """One spatial axis: `n` elements with `d - 1` zeros between, a window of `k`, `count` results.

    With `lead` zeros before the window, position `p` of the result, counted from the first element
    of the input, sums tap `d*u + s` times element `q + u`, where `p = d*q - s` and `0 <= s < d`."""

    n: int
    d: int
    k: int
    low: int
    count: int

    @property
    def taps(self) -> int:
        return -(-self.k // self.d)

    @property
    def lead(self) -> int:
        """Zeros that let the first result be the first of its phases, if they cost no tap."""
        wanted = (-1 - self.low) % self.d
        return wanted if self.k + wanted <= self.taps * self.d else 0

    @property
    def start(self) -> int:
        """Number of the first positions that are cut off."""
        return self.d - 1 - (self.low + self.lead) % self.d

    @property
    def padding(self) -> tuple[int, int]:
        low = self.low + self.lead
        last = -(-(self.count - 1 - low) // self.d)
        return low // self.d, last + self.taps - self.n

    @property
    def blocks(self) -> int:
        """Number of positions of the smaller convolution."""
        return self.n + sum(self.padding) - self.taps + 1


@dataclass(frozen=True)
class _Split:
    op: Op
    layout: Layout
    axes: tuple[_Axis, ...]

    @staticmethod
    def of(op: Op) -> "_Split":
        layout = Layout.of(op)
        x, w = (shape_of(v) for v in op.operands)
        y, by = shape_of(op.results[0]), integers(op, "lhs_dilation")
        spatial = layout.input_spatial, layout.kernel_spatial, layout.output_spatial
        axes = tuple(
            _Axis(x[a], d, w[b], low, y[c])
            for a, b, c, d, (low, _) in zip(*spatial, by, padding_of(op), strict=True)
        )
        return _Split(op, layout, axes)

    def rewrite(self, program: Program) -> ir.Value:
        """Replaces the op, and returns the weight that the new one reads."""
        op, feature, old = self.op, self.layout.output_feature, self.op.results[0]
        with at(op):
            w = self._weight(op.operands[1])
            shape = list(shape_of(old))
            for place, axis in zip(self.layout.output_spatial, self.axes, strict=True):
                shape[place] = axis.blocks
            shape[feature] = shape_of(w)[self.layout.kernel_out]
            padding = np.array([axis.padding for axis in self.axes], np.int64)
            y = like(
                op,
                [op.operands[0], w],
                shape,
                dtype_of(old),
                padding=ir.DenseElementsAttr.get(padding),
                lhs_dilation=i64_array([1] * len(self.axes)),
                window_reversal=None,
            )
        bias, last = self._added(program)
        with at(last.owner):
            if bias is not None:
                times = shape[feature] // shape_of(old)[feature]
                name = f"{string_attr(op, NAME) or 'convolution'}:bias"
                vector = program.add_weight(name, np.tile(bias, times))
                y = OPS.add(y, OPS.broadcast(vector, shape, [feature]))
            last.replace_all_uses_with(self._shuffled(y, shape_of(last)))
        return w

    def _added(self, program: Program) -> tuple[np.ndarray | None, ir.Value]:
        """The vector that is added to each result, f32 [O], and the sum."""
        old, feature = self.op.results[0], self.layout.output_feature
        chain = forwards(program, old)
        sizes = {a: n for a, n in enumerate(chain.b.shape) if n > 1}
        plain = chain.ops and not (chain.c != 1).any() and dtype_of(old) == np.float32
        if not plain or set(sizes) - {feature}:
            return None, old
        vector = np.broadcast_to(chain.b.reshape(-1), (shape_of(old)[feature],))
        return vector.astype(np.float32), chain.result

    def _weight(self, w: ir.Value) -> ir.Value:
        """The filters of all phases: channels [d, d, ..., O] in the place of O."""
        layout, rank = self.layout, len(shape_of(w))
        w = _reversed(w, turned_axes(self.op))
        low, high = [0] * rank, [0] * rank
        for place, axis in zip(layout.kernel_spatial, self.axes, strict=True):
            low[place], high[place] = axis.lead, axis.taps * axis.d - axis.k - axis.lead
        w = OPS.pad(w, 0, low, high)
        split, order = list[int](), dict[int, list[int]]()  # of each axis, where its parts are
        phases = []
        for place, n in enumerate(shape_of(w)):
            order[place] = [len(split)]
            if place in layout.kernel_spatial:
                d = self.axes[layout.kernel_spatial.index(place)].d
                split += [n // d, d]
            else:
                split.append(n)
        phases = [order[place][0] + 1 for place in layout.kernel_spatial]
        order[layout.kernel_out] = [*phases, *order[layout.kernel_out]]
        w = _reversed(OPS.reshape(w, split), phases)  # the last phase has the first positions
        w = OPS.transpose(w, [a for place in range(rank) for a in order[place]])
        shape = [int(np.prod([split[a] for a in order[place]])) for place in range(rank)]
        return OPS.reshape(w, shape)

    def _shuffled(self, y: ir.Value, result: tuple[int, ...]) -> ir.Value:
        """The phases in channels [d, d, ..., O] put beside their positions, and cut."""
        layout, whole, split = self.layout, list(result), list[int]()
        order = dict[int, list[int]]()
        start = [0] * len(result)
        for place, n in enumerate(shape_of(y)):
            if place == layout.output_feature:
                first = len(split)
                split += [*(axis.d for axis in self.axes), result[place]]
                order[place] = [len(split) - 1]
            else:
                order[place] = [len(split)]
                split.append(n)
        for i, (place, axis) in enumerate(zip(layout.output_spatial, self.axes, strict=True)):
            order[place].append(first + i)
            whole[place], start[place] = axis.blocks * axis.d, axis.start
        y = OPS.reshape(y, split)
        y = OPS.transpose(y, [a for place in range(len(result)) for a in order[place]])
        y = OPS.reshape(y, whole)
        if whole == list(result):
            return y
        return OPS.slice(y, start, [a + n for a, n in zip(start, result, strict=True)])


def _reversed(w: ir.Value, axes: list[int]) -> ir.Value:
    return stablehlo.reverse(w, axes) if axes else w
