"""Steps that move or select codes, or sum along axes, between Q and DQ."""

import math
from functools import partialmethod
from typing import Any

import numpy as np
from onnx import TensorProto

from jq.device.forms import float_rescale as fr
from jq.device.forms.canonical.base import Simple
from jq.device.forms.qdq_base import CHANNELS_FIRST, F32, Writer, scale_of

CLOSE = 1e-4  # of a factor to that of a mean


class Moves(Writer):
    """Steps without products."""

    def _reshape(self, step: Simple) -> None:
        self.graph.reshape(step.output, step.inputs[0])

    def _transpose(self, step: Simple) -> None:
        self.graph.transpose(step.output, step.inputs[0], step.attributes["permutation"])

    def _concatenate(self, step: Simple) -> None:
        order = self.order(*step.inputs)
        axis = order.index(step.attributes["axis"])
        self.graph.move("Concat", step.inputs, step.output, order, axis=axis)

    def _slice(self, step: Simple) -> None:
        start, size = (np.array(step.attributes[k]) for k in ("start", "size"))
        self._sliced(step, start, start + size, np.ones_like(start))

    def _reverse(self, step: Simple) -> None:
        shape, axis = step.inputs[0].shape, step.attributes["axis"]
        start, end = np.zeros(len(shape), int), np.array(shape)
        by = np.ones_like(start)
        start[axis], end[axis], by[axis] = shape[axis] - 1, -shape[axis] - 1, -1
        self._sliced(step, start, end, by)

    def _sliced(self, step: Simple, start: Any, end: Any, by: Any) -> None:
        order = self.order(*step.inputs)
        axes = np.arange(len(order))
        rows = [start[list(order)], end[list(order)], axes, by[list(order)]]
        given = [self.graph.constant(v, np.int64) for v in rows]
        self.graph.move("Slice", step.inputs, step.output, order, *given)

    def _pad(self, step: Simple) -> None:
        order, x = self.order(*step.inputs), step.output
        padding = np.array(step.attributes["padding"])[list(order)]
        amounts = self.graph.constant(padding.T.reshape(-1), np.int64)
        real = F32(step.attributes["value"] - x.zero) * scale_of(x)
        value = self.graph.constant(real, F32)
        self.graph.move("Pad", step.inputs, x, order, amounts, value)

    def _gather_rows(self, step: Simple) -> None:
        rows, at = step.inputs[0], self.graph.codes(step.inputs[1])
        self.graph.move("Gather", [rows], step.output, range(len(rows.shape)), at, axis=0)

    def _tile(self, step: Simple) -> None:
        order = self.order(*step.inputs)
        repeats = self.graph.constant(np.array(step.attributes["repeats"])[list(order)], np.int64)
        self.graph.move("Tile", step.inputs, step.output, order, repeats)

    def _extreme(self, kind: str, step: Simple) -> None:
        self.graph.move(kind, step.inputs, step.output, self.order(*step.inputs))

    _maximum, _minimum = partialmethod(_extreme, "Max"), partialmethod(_extreme, "Min")

    def _along(self, kind: str, step: Simple) -> None:
        order = self.order(*step.inputs)
        axes = self.graph.constant([order.index(step.attributes["axis"])], np.int64)
        self.graph.move(kind, step.inputs, step.output, order, axes, keepdims=1)

    _max, _min = partialmethod(_along, "ReduceMax"), partialmethod(_along, "ReduceMin")

    def _integers(self, kind: str, step: Simple) -> None:
        """An op on numbers that stand for themselves, codes among them, in a type that all have."""
        order, made = self.order(*step.inputs), step.output
        names = [self.graph.codes(x, order) for x in step.inputs]
        for i, x in enumerate(step.inputs):
            if x.dtype not in ("bool", "int32"):  # what leaves 32 bits begins anew
                names[i] = self.graph.op("Cast", [names[i]], to=TensorProto.INT32)
        last = TensorProto.DataType.Value(made.dtype.upper())
        self.graph.hold(made, self.graph.op("Cast", [self.graph.op(kind, names)], to=last), order)

    _integer_add, _select = partialmethod(_integers, "Add"), partialmethod(_integers, "Where")
    _integer_subtract = partialmethod(_integers, "Sub")
    _integer_multiply, _equal = partialmethod(_integers, "Mul"), partialmethod(_integers, "Equal")
    _integer_divide, _greater = partialmethod(_integers, "Div"), partialmethod(_integers, "Greater")
    _logical_and, _logical_or = partialmethod(_integers, "And"), partialmethod(_integers, "Or")
    _logical_not, _convert = partialmethod(_integers, "Not"), partialmethod(_integers, "Identity")
    _greater_equal = partialmethod(_integers, "GreaterOrEqual")

    # Windows and sums

    def _max_pool(self, step: Simple) -> None:
        self.graph.move("MaxPool", step.inputs, step.output, CHANNELS_FIRST, **_windows(step))

    def _sum_pool(self, step: Simple) -> None:
        x = self._mean_of(step, math.prod(step.attributes["window"]), CHANNELS_FIRST)
        y = self.graph.op("AveragePool", [x], count_include_pad=1, **_windows(step))
        y = self.with_bias(y, step, "a sum")
        self.graph.hold(step.output, self.codes(y, step), CHANNELS_FIRST)
        self.doubt(step, "ONNX Runtime computes averages of windows in float32")

    def _sum(self, step: Simple) -> None:
        (x,), axes = step.inputs, list(step.attributes["axes"])
        terms = math.prod(x.shape[a] for a in axes)
        pooled = len(x.shape) == 4 and sorted(axes) == [1, 2]
        order = CHANNELS_FIRST if pooled else self.order(x)
        real = self._mean_of(step, terms, order)
        if pooled:
            y = self.graph.op("GlobalAveragePool", [real])
        else:
            along = self.graph.constant([order.index(a) for a in axes], np.int64)
            y = self.graph.op("ReduceMean", [real, along], keepdims=1)
            self.doubt(step, "ONNX Runtime computes means along axes in float32")
        self.graph.hold(step.output, self.codes(self.with_bias(y, step, "a sum"), step), order)

    def _mean_of(self, step: Simple, terms: int, order: Any) -> str:
        """The floats whose mean is the step's result: by the scale of the tensor where it is a
        mean, else by a multiple."""
        (x,), out = step.inputs, step.out
        factor = step.numbers["factor"].reshape(-1)
        guess = factor * out.scale * terms
        if x.dtype != "int8" or step.output.dtype != "int8":
            self.doubt(step, "16-bit codes: ONNX Runtime computes it in float32")
            return self.real(x, order, guess[0])
        own = scale_of(x)
        close = np.abs(guess / own - 1) < CLOSE
        size = F32(F32(out.scale) * F32(terms))
        scales, bad = fr.sum_scales(
            factor, np.where(close, own, guess), lambda s: s / size, out, self.rescaling
        )
        if bad:
            self.doubt(step, "sums are rescaled in float32")
        return self.real(x, order, scales[0])


def _windows(step: Simple) -> dict[str, Any]:
    given = step.attributes
    pads = [v for side in zip(*given["padding"], strict=True) for v in side]
    return {"kernel_shape": given["window"], "strides": given["stride"], "pads": pads}
