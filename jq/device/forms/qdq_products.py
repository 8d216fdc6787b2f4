"""Products, sums along axes, and steps that move or select codes, between Q and DQ."""

import math
from collections.abc import Callable
from functools import partialmethod
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms import float_rescale as fr
from jq.device.forms.canonical.base import Simple
from jq.device.forms.qdq_elementwise import CHANNELS_FIRST, F32, Elementwise, scale_of
from jq.device.network import Tensor

CLOSE = 1e-4  # of a factor to that of a mean


class Products(Elementwise):
    """Steps whose sums of products are rescaled, and those that no codes are computed in."""

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

    def _tile(self, step: Simple) -> None:
        order = self.order(*step.inputs)
        repeats = np.array(step.attributes["repeats"])[list(order)]
        given = self.graph.constant(repeats, np.int64)
        self.graph.move("Tile", step.inputs, step.output, order, given)

    def _extreme(self, kind: str, step: Simple) -> None:
        self.graph.move(kind, step.inputs, step.output, self.order(*step.inputs))

    _maximum, _minimum = partialmethod(_extreme, "Max"), partialmethod(_extreme, "Min")

    def _along(self, kind: str, step: Simple) -> None:
        order = self.order(*step.inputs)
        axes = self.graph.constant([order.index(step.attributes["axis"])], np.int64)
        self.graph.move(kind, step.inputs, step.output, order, axes, keepdims=1)

    _max, _min = partialmethod(_along, "ReduceMax"), partialmethod(_along, "ReduceMin")

    # Windows and sums

    def _max_pool(self, step: Simple) -> None:
        windows = _windows(step)
        self.graph.move("MaxPool", step.inputs, step.output, CHANNELS_FIRST, **windows)

    def _sum_pool(self, step: Simple) -> None:
        terms = math.prod(step.attributes["window"])
        x = self._mean_of(step, terms, CHANNELS_FIRST)
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

    # Products

    def _scaled(
        self, step: Simple, of: Callable[[np.ndarray], np.ndarray], unit: float, channels: int
    ) -> np.ndarray:
        """Scales of a second operand, one for each channel, of which `unit` times is a sum's."""
        factor = np.broadcast_to(step.numbers["factor"].reshape(-1), [channels])
        if (factor <= 0).any():
            # A channel without weights: any scale will do.
            factor = np.where(factor == 0, 2.0**-20, factor)
            if (factor < 0).any():
                raise UserError("a negative scale has no Q/DQ form", op=step.name)
        guess = factor * step.out.scale / unit
        if {x.dtype for x in step.inputs} | {step.output.dtype} != {"int8"}:
            self.doubt(step, "16-bit codes: ONNX Runtime computes it in float32")
            return guess.astype(F32)
        scales, bad = fr.sum_scales(factor, guess, of, step.out, self.rescaling)
        if bad:
            self.doubt(step, f"{bad} of {channels} channels: sums are rescaled in float32")
        return scales

    def _filters(self, step: Simple, w: np.ndarray, axis: int) -> tuple[str, str]:
        """The floats of a weight and of its bias, with one scale for each index of `axis`."""
        x, n, out = step.inputs[0], w.shape[axis], F32(step.out.scale)
        scales = self._scaled(step, lambda s: (scale_of(x) * s) / out, float(scale_of(x)), n)
        if np.all(scales == scales[0]):
            scales = scales[:1]
        weight = self.graph.dequantized(self.graph.constant(w, "int8"), scales, 0, "int8", axis)
        bias = np.broadcast_to(step.numbers["bias"].reshape(-1), [n])
        codes = self.graph.constant(bias, "int32")
        return weight, self.graph.dequantized(codes, scale_of(x) * scales, 0, "int32")

    def _conv2d(self, step: Simple) -> None:
        x, w = step.inputs
        if w.dtype != "int8" or (w.zero_point is not None and w.zero_point.any()):
            raise UserError("weights are written in int8 with zero point 0", op=step.name)
        rows = w.shape[1:3] == (1, 1) and x.shape[0] == x.shape[2] == 1
        if rows and max(step.attributes["stride"]) == 1 and not np.any(step.attributes["padding"]):
            self._dense(step)
        else:
            self._windows(step, "Conv", w.values.transpose(0, 3, 1, 2), 0)

    def _depthwise(self, step: Simple) -> None:
        w = step.inputs[1]
        filters = w.values.transpose(2, 3, 0, 1).reshape(-1, 1, *w.shape[:2])
        self._windows(step, "Conv", filters, 0, group=w.shape[2])

    def _transposed(self, step: Simple) -> None:
        stride, padding = step.attributes["stride"], step.attributes["out_padding"]
        more = [max(0, high) for _, high in padding]  # behind the end, where a stride has room
        if any(low > 0 for low, _ in padding) or np.any(np.array(more) >= stride):
            what = "a transposed convolution whose result is padded has no form in ONNX"
            raise UserError(what, op=step.name)
        pads = [-min(0, v) for side in zip(*padding, strict=True) for v in side]
        filters = step.inputs[1].values.transpose(3, 0, 1, 2)
        given = {"strides": stride, "pads": pads, "output_padding": more}
        y = self._product("ConvTranspose", step, filters, 1, **given)
        self.graph.hold(step.output, y, CHANNELS_FIRST)
        self.doubt(step, "ONNX Runtime computes transposed convolutions in float32")

    def _windows(self, step: Simple, kind: str, w: np.ndarray, axis: int, **more: Any) -> None:
        given = step.attributes
        pads = [v for side in zip(*given["padding"], strict=True) for v in side]
        attributes = {"strides": given["stride"], "dilations": given["dilation"], "pads": pads}
        y = self._product(kind, step, w, axis, **attributes, **more)
        self.graph.hold(step.output, y, CHANNELS_FIRST)

    def _product(self, kind: str, step: Simple, w: np.ndarray, axis: int, **more: Any) -> str:
        # What several steps rescale is written for each: a runtime fuses one Q with its product.
        x = self.real(step.inputs[0], CHANNELS_FIRST)
        return self.codes(self.graph.op(kind, [x, *self._filters(step, w, axis)], **more), step)

    def _dense(self, step: Simple) -> None:
        x, w = step.inputs
        rows, n = x.shape[1], w.shape[0]
        codes = self.graph.shaped(x, (rows, x.shape[3]))
        real = self.graph.dequantized(codes, scale_of(x), x.zero, x.dtype)
        filters = self._filters(step, w.values.reshape(n, -1).T, 1)
        y = self.codes(self.graph.op("Gemm", [real, *filters]), step)
        made = Tensor(f"{step.output.name}/rows", (rows, n), step.output.dtype)
        self.graph.hold(made, y)
        self.graph.reshape(step.output, made)

    def _matmul(self, step: Simple) -> None:
        a, b = step.inputs
        sb, out = scale_of(b), F32(step.out.scale)
        scales = self._scaled(step, lambda s: (s * sb) / out, float(sb), 1)
        y = self.graph.op("MatMul", [self.real(a, scale=scales[0]), self.real(b)])
        y = self.with_bias(y, step, "a product of two tensors")
        self.graph.hold(step.output, self.codes(y, step))


def _windows(step: Simple) -> dict[str, Any]:
    given = step.attributes
    pads = [v for side in zip(*given["padding"], strict=True) for v in side]
    return {"kernel_shape": given["window"], "strides": given["stride"], "pads": pads}
