"""Products, and sums, which are products by ones: MEAN has an arithmetic of its own."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jq.device.forms.canonical.base import Simple
from jq.device.forms.tflite.builder import Builder
from jq.device.network import Tensor
from jq.frontends.tflite.schema import VALID


class Products(Builder):
    """Steps whose sums of products are rescaled."""

    def padded(self, x: Tensor, padding: Sequence[tuple[int, int]], value: int) -> Tensor:
        """NHWC codes with their spatial axes padded."""
        if not np.any(padding):
            return x
        pairs = [(0, 0), *padding, (0, 0)]
        made = self.fresh(x, [n + sum(p) for n, p in zip(x.shape, pairs, strict=True)])
        return self.op("PADV2", [x, self.constant(pairs), self.coded([value], x)], made)

    def weights(self, step: Simple, x: Tensor, w: Tensor, channels: int) -> list[Tensor]:
        """A filter and its bias, with the scales that give the step's mantissas. Scales are
        positive, as XNNPACK takes them: codes take the factor's sign, and are 0 where it is 0."""
        if w.zero_point is not None and w.zero_point.any():
            raise self.lacking("a weight with a zero point")
        bias, factor = (np.broadcast_to(step.numbers[k], channels) for k in ("bias", "factor"))
        sign = np.sign(factor).astype(np.int64)
        largest = np.abs(factor).max() or 1.0
        numbers = {"bias": bias * sign, "factor": np.where(sign, factor * sign, largest)}
        scale = self.weight_scale(replace(step, numbers=step.numbers | numbers), x, w.scale)
        name = self.new(w.name)
        self.axes[name] = axis = 3 if step.kind == "depthwise" else 0
        codes = np.moveaxis(np.moveaxis(w.values, axis, -1) * sign, -1, axis)
        if codes.max(initial=0) > np.iinfo(w.dtype).max:
            raise self.lacking("a negative factor of a weight whose codes begin at -128")
        assert x.scale is not None
        of_sums = (x.scale.reshape(-1)[:1] * scale).astype(np.float32)
        w = replace(w, name=name, scale=scale, data=codes.astype(w.dtype))
        kind = "int32" if x.dtype == "int8" else "int64"
        return [w, self.constant(numbers["bias"], kind, of_sums)]

    def _conv2d(self, step: Simple) -> None:
        x, w = step.inputs
        x = self.padded(x, step.attributes["padding"], x.zero)
        weights = self.weights(step, x, w, w.shape[0])
        self.finish(step, "CONV_2D", [x, *weights], **strides(step.attributes))

    def among(self, step: Simple, before: Any, after: Any, write: Any, *more: Any) -> None:
        """A step whose operand and result have other shapes while it is written."""
        x = step.inputs[0]
        flat, made = self.reshaped(x, self.fresh(x, before)), self.fresh(step.output, after)
        write(replace(step, inputs=(flat, *step.inputs[1:]), output=made), *more)
        self.reshaped(self.known[made.name], step.output)

    def _fully_connected(self, step: Simple) -> None:
        x, w = step.inputs
        rows, (channels, *_), terms = int(np.prod(x.shape[:-1])), w.shape, x.shape[-1]
        w = replace(w, shape=(channels, terms), data=w.values.reshape(channels, terms))

        def write(inner: Simple) -> None:
            x = inner.inputs[0]
            self.finish(inner, "FULLY_CONNECTED", [x, *self.weights(step, x, w, channels)])

        self.among(step, (rows, terms), (rows, channels), write)

    def _depthwise(self, step: Simple) -> None:
        x, w = step.inputs
        height, width, channels, many = w.shape
        x = self.padded(x, step.attributes["padding"], x.zero)
        w = replace(w, shape=(1, height, width, channels * many))
        w = replace(w, data=w.values.reshape(w.shape))
        weights = self.weights(step, x, w, channels * many)
        options = {**strides(step.attributes), "depth_multiplier": many}
        self.finish(step, "DEPTHWISE_CONV_2D", [x, *weights], **options)

    def _transposed(self, step: Simple) -> None:
        """Every window, then what is cut off."""
        x, w = step.inputs
        stride, cut = step.attributes["stride"], step.attributes["out_padding"]
        spans = zip(x.shape[1:3], stride, w.shape[1:3], strict=True)
        sizes = [(n - 1) * s + k for n, s, k in spans]
        whole = self.fresh(step.output, (x.shape[0], *sizes, w.shape[0]))
        weights = self.weights(step, x, w, w.shape[0])
        made = replace(step, output=whole if np.any(cut) else step.output)
        operands = [self.constant(made.output.shape), weights[0], x, weights[1]]
        self.finish(made, "TRANSPOSE_CONV", operands, **strides(step.attributes))
        if np.any(cut):
            self.slice(self.known[whole.name], [0, -cut[0][0], -cut[1][0], 0], step.output)

    def _plain_matmul(self, step: Simple) -> None:
        a, b = step.inputs
        if self.rescaling.rounding != "double":
            raise self.lacking("a product of two activations by XNNPACK")
        self.scales(step, np.float64, a, b)
        if step.numbers["bias"].any():
            raise self.lacking("a product of two activations with a bias")
        self.finish(step, "BATCH_MATMUL", [a, b], adj_x=False, adj_y=False)

    # Sums

    def _mean(self, step: Simple) -> None:
        if (step.out.low, step.out.high) != (-128, 127):
            raise self.lacking("a mean that is clamped")
        axes = self.constant(sorted(step.attributes["axes"]))
        self.op("MEAN", [step.inputs[0], axes], self.given(step), keep_dims=True)

    def _average_pool(self, step: Simple) -> None:
        given = step.attributes
        if np.any(given["padding"]):
            raise self.lacking("an average of windows that are padded")
        size = dict(zip(("filter_height", "filter_width"), given["window"], strict=True))
        self.finish(step, "AVERAGE_POOL_2D", step.inputs, **size, **strides(given))

    def _sum_pool(self, step: Simple) -> None:
        self._sums(step, step.attributes["window"], 1)

    def _sum(self, step: Simple) -> None:
        """Neighbouring axes become one that is a window."""
        (x,), axes = step.inputs, sorted(step.attributes["axes"])
        if axes != list(range(axes[0], axes[-1] + 1)):
            order = [*(a for a in range(len(x.shape)) if a not in axes), *axes]
            made = self.fresh(x, [x.shape[a] for a in order])
            x = self.op("TRANSPOSE", [x, self.constant(order)], made)
            axes = list(range(len(order) - len(axes), len(order)))
        parts = slice(axes[0]), slice(axes[0], axes[-1] + 1), slice(axes[-1] + 1, None)
        outer, count, inner = (int(np.prod(x.shape[part])) for part in parts)
        geometry = {"stride": [1, 1], "padding": [(0, 0), (0, 0)]}
        step = replace(step, inputs=(x,), attributes=geometry)
        ends = (outer, count, 1, inner), (outer, 1, 1, inner)
        self.among(step, *ends, self._sums, (count, 1), 1)

    def _sums(self, step: Simple, window: Sequence[int], one: int) -> None:
        """Sums of windows: a depthwise convolution by a code; what is padded adds nothing."""
        x = step.inputs[0]
        if len(x.shape) != 4:
            channels = max(v.size for v in step.numbers.values())
            rows = math.prod(x.shape) // channels, 1, 1, channels
            self.among(step, rows, rows, self._sums, window, one)
            return
        filters = np.full((*window, x.shape[3], 1), one, np.int8)
        w = Tensor(f"{step.name}:ones", filters.shape, "int8", data=filters)
        geometry = {"stride": [1, 1], "padding": [(0, 0), (0, 0)], **step.attributes}
        geometry["dilation"] = [1, 1]
        self._depthwise(replace(step, kind="depthwise", inputs=(x, w), attributes=geometry))


def strides(given: dict[str, Any]) -> dict[str, int]:
    """The options of a window that is not padded."""
    high, wide = given["stride"]
    dilation = zip(("dilation_h", "dilation_w"), given.get("dilation", ()), strict=False)
    return {"padding": VALID, "stride_h": high, "stride_w": wide, **dict(dilation)}
