"""Sums and products of two tensors, functions of single codes and softmax, between Q and DQ."""

from functools import partialmethod

import numpy as np

from jq.base.errors import UserError
from jq.device.forms import float_rescale as fr
from jq.device.forms.canonical.base import Simple
from jq.device.forms.qdq_base import F32, Writer, scale_of
from jq.device.network import Tensor

Codes = np.ndarray
CLOSE = 1e-6  # of a factor to that of a mere sum
MOST = 1 << 18  # entries of a table


class Elementwise(Writer):
    """Steps on elements alike, and softmax."""

    # Two tensors

    def _two(self, kind: str, step: Simple) -> None:
        (a, b), numbers = step.inputs, step.numbers
        if "shift" in numbers:
            what = "sums of two tensors as XNNPACK computes them have no Q/DQ form"
            raise UserError(what, op=step.name, hint="give the target onnx-qdq")
        scales = tuple(numbers["scales"]) if "scales" in numbers else self._operands(step)
        if "scales" not in numbers:
            self.doubt(step, "computed in float32; int8 is exact with the target onnx-qdq")
        order = self.order(a, b)
        reals = [self.real(t, order, s) for t, s in zip((a, b), scales, strict=True)]
        if step.numbers["factor"].size > 1:
            raise UserError("factors by channel of a sum of two have no Q/DQ form", op=step.name)
        last = order.index(len(order) - 1) if order else -1
        real = self.with_bias(self.graph.op(kind, reals), step, "a sum or product of two", last)
        self.graph.hold(step.output, self.codes(real, step), order)

    _add, _subtract = partialmethod(_two, "Add"), partialmethod(_two, "Sub")
    _multiply = partialmethod(_two, "Mul")

    def _operands(self, step: Simple) -> tuple[F32, F32]:
        """Scales with which the sum or product of both is the step's result: their own, but where
        the step is also a multiple."""
        (a, b), n = (scale_of(x) for x in step.inputs), step.numbers
        product = step.kind == "multiply"
        unit = float(a) * float(b) if product else n["unit"].item()
        many = n["factor"].reshape(-1)[0] * step.out.scale * 2.0 ** n["bits"].item() / unit
        return (a, b) if abs(many - 1) < CLOSE else (F32(a * many), b if product else F32(b * many))

    def _ended(self, step: Simple, total: Codes) -> Codes:
        """The program's codes of int32 sums, a row for each channel that has its own numbers."""
        out, numbers = step.out, step.numbers
        factor, bias = (numbers[k].reshape(-1, 1) for k in ("factor", "bias"))
        y = fr.rescaled(total + bias, factor, self.rescaling)
        return np.clip(y.astype(np.int64) + out.zero_point, out.low, out.high)

    # One tensor

    def _rescale(self, step: Simple) -> None:
        (x,), out = step.inputs, step.out
        ends = np.iinfo(x.dtype)
        centered = np.arange(ends.min, ends.max + 1) - x.zero
        codes = self._ended(step, centered << int(step.numbers["bits"].reshape(())))
        if codes.size > MOST:
            raise UserError("factors by channel of 16 bits have no Q/DQ form", op=step.name)
        # ONNX Runtime merges two pairs in a row, and leaves out a rounding.
        one = len(codes) == 1 and self.readers[x.name] > 1
        scale = fr.function_scale(centered, float(scale_of(x)), codes[0], out) if one else None
        if scale is None:
            self._looked_up(step, x, codes)
            return
        order = self.order(x)
        self.graph.hold(step.output, self.codes(self.real(x, order, scale[0]), step), order)

    def _table(self, step: Simple) -> None:
        (x,), out, codes = step.inputs, step.out, step.table
        ends = np.iinfo(x.dtype)
        real = (np.arange(ends.min, ends.max + 1) - x.zero) * np.float64(scale_of(x))
        found = fr.named_function(real, codes, out)
        if found is None:
            self._looked_up(step, x, codes)
            return
        (kind, attributes), order = found, self.order(x)
        y = self.graph.op(kind, [self.real(x, order)], **attributes)
        self.graph.hold(step.output, self.codes(y, step), order)

    def _looked_up(self, step: Simple, x: Tensor, codes: Codes) -> None:
        """The code of each code, by channel if there are rows: no float comes to it."""
        g, order = self.graph, self.order(x)
        wide = g.op("Cast", [g.codes(x, order)], to=6)  # int32
        starts = np.arange(0, codes.size, codes.shape[-1]) - np.iinfo(x.dtype).min
        axes = [starts.size if a == len(order) - 1 else 1 for a in order]
        starts = starts.reshape(axes if starts.size > 1 else ())
        index = g.op("Add", [wide, g.constant(starts, np.int32)])
        y = g.op("Gather", [g.constant(codes.reshape(-1), step.output.dtype), index], axis=0)
        g.hold(step.output, y, order)

    def _softmax(self, step: Simple) -> None:
        x, *masks = step.inputs
        conditions = [masks.pop()] if "where" in step.numbers else []
        order = self.order(x)
        axis, scores = order.index(int(step.numbers["axis"].reshape(()))), self.real(x, order)
        for mask in masks:
            scores = self.graph.op("Add", [scores, self.real(mask, order)])
        if "hidden" in step.numbers:
            hidden = np.broadcast_to(step.numbers["hidden"], step.output.shape).transpose(order)
            given = self.graph.constant(hidden, bool), self.graph.constant(np.finfo(F32).min, F32)
            scores = self.graph.op("Where", [*given, scores])
        for condition in conditions:
            least = self.graph.constant(np.finfo(F32).min, F32)
            both = [least, scores] if step.numbers["where"].any() else [scores, least]
            scores = self.graph.op("Where", [self.graph.codes(condition, order), *both])
        y = self.graph.op("Softmax", [scores], axis=axis)
        self.graph.hold(step.output, self.codes(y, step), order)
        self.doubt(step, "ONNX Runtime computes softmax in float32")
