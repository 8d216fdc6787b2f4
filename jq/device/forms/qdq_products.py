"""Products, whose sums are rescaled, between Q and DQ."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms import float_rescale as fr
from jq.device.forms.canonical.base import Simple
from jq.device.forms.qdq_base import CHANNELS_FIRST, F32, Writer, scale_of
from jq.device.network import Tensor


class Products(Writer):
    """Convolutions and products of matrices."""

    def _scaled(
        self, step: Simple, of: Callable[[np.ndarray], np.ndarray], unit: float, channels: int
    ) -> np.ndarray:
        """Scales of a second operand, one for each channel, of which `unit` times is a sum's."""
        factor = np.broadcast_to(step.numbers["factor"].reshape(-1), [channels])
        factor = np.where(factor == 0, 2.0**-20, factor)  # without weights any scale will do
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
        pads = [-v for side in zip(*padding, strict=True) for v in side]
        filters = step.inputs[1].values.transpose(3, 0, 1, 2)
        y = self._product("ConvTranspose", step, filters, 1, strides=stride, pads=pads)
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
        """A product; by a negative factor the opposite one, whose codes are `-1 - code`."""
        numbers, out = step.numbers, step.out
        if (negative := numbers["factor"].max() < 0) and self.rescaling.rounding == "float32":
            zero, low, high = (-1 - n for n in (out.zero_point, out.high, out.low))
            out = replace(out, zero_point=zero, low=low, high=high)
            step = replace(step, numbers=numbers | {"factor": -numbers["factor"]}, out=out)
        a, b = step.inputs
        sb, unit = scale_of(b), F32(step.out.scale)
        scales = self._scaled(step, lambda s: (s * sb) / unit, float(sb), 1)
        y = self.graph.op("MatMul", [self.real(a, scale=scales[0]), self.real(b)])
        codes = self.codes(self.with_bias(y, step, "a product of two tensors"), step)
        self.graph.hold(step.output, self.graph.op("BitwiseNot", [codes]) if negative else codes)
