"""Sums and products of two tensors, functions of single codes and softmax, between Q and DQ; and
what all steps between Q and DQ need."""

from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any, TypeAlias

import numpy as np

from jq.base.errors import UserError
from jq.device.forms import float_rescale as fr
from jq.device.forms.canonical.base import Simple
from jq.device.forms.onnx_graph import Graph
from jq.device.forms.table import method_of
from jq.device.network import Tensor
from jq.formats.requantize import Rescaling
from jq.frontends.onnx.pairs import Scaled, products, sums

Codes = np.ndarray
F32: TypeAlias = np.float32
CHANNELS_FIRST = (0, 3, 1, 2)
CLOSE = 1e-6  # of a factor to that of a mere sum


def scale_of(tensor: Tensor) -> np.float32:
    """The one scale of a tensor.

    Raises:
        UserError: it has none, or several.
    """
    if tensor.scale is None or tensor.scale.size != 1:
        what = "no scale" if tensor.scale is None else "several scales"
        raise UserError(f"a tensor with {what} has no Q/DQ form", op=tensor.name)
    return F32(tensor.scale.reshape(-1)[0])


class Elementwise:
    """A graph in the making, with the layers whose codes may differ from the network's; and steps
    on elements alike, and softmax."""

    def __init__(self, rescaling: Rescaling) -> None:
        self.rescaling = rescaling
        self.graph = Graph()
        self.near_ties: dict[str, str] = {}  # layers whose codes may differ by one, and why

    def finish(self, tensor: Tensor) -> None:
        """Gives an output its name."""
        self.graph.name_output(self.graph.codes(tensor), tensor.name)

    def step(self, step: Simple) -> None:
        self.graph.layer = step.name
        write = method_of(self, step, "ONNX with Q/DQ")
        if "behind" in step.numbers and step.numbers["behind"].any():
            raise UserError("a bias that no accumulator holds has no Q/DQ form", op=step.name)
        write(step)

    def real(self, x: Tensor, order: Sequence[int] | None = None, scale: Any = None) -> str:
        """The floats of a tensor, by its own scale or another one."""
        scale = scale_of(x) if scale is None else scale
        return self.graph.dequantized(self.graph.codes(x, order), scale, x.zero, x.dtype)

    def _quantize(self, step: Simple) -> None:
        (x,), y = step.inputs, step.output
        order = self.order(x)
        codes = self.graph.quantized(self.graph.codes(x, order), scale_of(y), y.zero, y.dtype)
        self.graph.hold(y, codes, order)

    def _dequantize(self, step: Simple) -> None:
        (x,) = step.inputs
        order = self.order(x)
        self.graph.hold(step.output, self.real(x, order), order)

    def codes(self, y: str, step: Simple) -> str:
        """The codes of a step's float result."""
        out, dtype = step.out, step.output.dtype
        codes = self.graph.quantized(y, out.scale, out.zero_point, dtype)
        ends = np.iinfo(dtype)
        if (out.low, out.high) == (ends.min, ends.max):
            return codes
        # Behind the first pair, so that the op in front of it keeps its form.
        y = self.graph.dequantized(codes, out.scale, out.zero_point, dtype)
        reals = (F32(v - out.zero_point) * F32(out.scale) for v in (out.low, out.high))
        clipped = self.graph.op("Clip", [y, *(self.graph.constant(v, F32) for v in reals)])
        return self.graph.quantized(clipped, out.scale, out.zero_point, dtype)

    def with_bias(self, y: str, step: Simple, what: str, axis: int = -1) -> str:
        """The floats of a result with the step's bias, of which an axis may have several."""
        bias = step.numbers["bias"]
        if not bias.any():
            return y
        self.doubt(step, f"a bias behind {what} is added in float32")
        real = bias.reshape(-1) * (step.numbers["factor"].reshape(-1) * step.out.scale)
        if axis >= 0:
            real = real.reshape(-1, *[1] * (len(step.output.shape) - 1 - axis))
        return self.graph.op("Add", [y, self.graph.constant(real, F32)])

    def order(self, *xs: Tensor) -> tuple[int, ...]:
        """Axes in which an op on all elements alike needs the fewest transposes."""
        computed = [x for x in xs if x.data is None]
        return self.graph.orders((computed or list(xs))[0])[0]

    def doubt(self, step: Simple, why: str) -> None:
        self.near_ties[step.name] = why

    # Two tensors

    def _two(
        self,
        kind: str,
        function: Callable[[Codes, Codes], Codes],
        fused: Callable[[Scaled, Scaled, Scaled], Codes] | None,
        step: Simple,
    ) -> None:
        """A sum or product: `fused` gives what ONNX Runtime computes where it fuses the pairs,
        `function` where it does not."""
        out, (a, b) = step.out, step.inputs
        exact = self._times if step.kind == "multiply" else self._added
        if "shift" in step.numbers:
            what = "sums of two tensors as XNNPACK computes them have no Q/DQ form"
            raise UserError(what, op=step.name, hint="give the target onnx-qdq")
        scales, bias = self._operands(step), step.numbers["bias"]
        more = F32((bias * step.numbers["factor"]).reshape(-1)[0] * out.scale)
        if {t.dtype for t in (a, b, step.output)} != {"int8"}:
            self.doubt(step, "16-bit codes: ONNX Runtime computes it in float32")
        elif bias.size == 1:  # else each of its numbers would ask for scales of its own
            left, right = (np.arange(-128, 128) - t.zero for t in (a, b))
            wanted = self._ended(step, exact(step, left[:, None], right[None, :]))
            y = _scaled(F32(out.scale), out.zero_point)

            def table(first: F32, second: F32) -> Codes:
                if fused is not None and not more:
                    x, z = _scaled(first, a.zero), _scaled(second, b.zero)
                    return np.clip(fused(x, z, y), out.low, out.high)
                reals = left.astype(F32)[:, None] * first, right.astype(F32)[None, :] * second
                return fr.quantized(function(*reals) + more, out)

            scales, bad = fr.pair_scales(scales, table, wanted)
            if bad:
                self.doubt(step, f"{bad} of 65536 pairs of codes are next to a tie in float32")
        order = self.order(a, b)
        reals = [self.real(t, order, s) for t, s in zip((a, b), scales, strict=True)]
        if step.numbers["factor"].size > 1:
            raise UserError("factors by channel of a sum of two have no Q/DQ form", op=step.name)
        made, last = self.graph.op(kind, reals), order.index(len(order) - 1)
        real = self.with_bias(made, step, "a sum or product of two", last)
        self.graph.hold(step.output, self.codes(real, step), order)

    _add = partialmethod(_two, "Add", np.add, sums)
    _subtract = partialmethod(_two, "Sub", np.subtract, None)
    _multiply = partialmethod(_two, "Mul", np.multiply, products)

    def _added(self, step: Simple, left: Codes, right: Codes) -> Codes:
        bits, unit = (float(step.numbers[k].reshape(())) for k in ("bits", "unit"))
        factors = [np.array(float(scale_of(x)) / unit) for x in step.inputs]
        a, b = (
            fr.rescaled(v << int(bits), f, self.rescaling)
            for v, f in zip((left, right), factors, strict=True)
        )
        return a - b if step.kind == "subtract" else a + b

    def _operands(self, step: Simple) -> tuple[F32, F32]:
        """Scales with which the sum or product of both is the step's result: their own, but where
        the step is also a multiple."""
        (a, b), n = (scale_of(x) for x in step.inputs), step.numbers
        product = step.kind == "multiply"
        unit = float(a) * float(b) if product else n["unit"].item()
        many = n["factor"].reshape(-1)[0] * step.out.scale * 2.0 ** n["bits"].item() / unit
        if abs(many - 1) < CLOSE:
            return a, b
        return F32(a * many), b if product else F32(b * many)

    def _times(self, step: Simple, left: Codes, right: Codes) -> Codes:
        return (left * right) << int(step.numbers["bits"].reshape(()))

    def _ended(self, step: Simple, total: Codes) -> Codes:
        """The program's codes of int32 sums."""
        out, numbers = step.out, step.numbers
        if numbers["factor"].size > 1 or numbers["bias"].size > 1:
            raise UserError("factors by channel of a sum of two have no Q/DQ form", op=step.name)
        total = total + numbers["bias"].reshape(())
        y = fr.rescaled(total, numbers["factor"].reshape(()), self.rescaling)
        return np.clip(y.astype(np.int64) + out.zero_point, out.low, out.high)

    # One tensor

    def _rescale(self, step: Simple) -> None:
        (x,), out = step.inputs, step.out
        ends = np.iinfo(x.dtype)
        centered = np.arange(ends.min, ends.max + 1) - x.zero
        codes = self._ended(step, centered << int(step.numbers["bits"].reshape(())))
        scale = fr.function_scale(centered, float(scale_of(x)), codes, out)
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
        """The code of each code: no float comes to it."""
        g, order = self.graph, self.order(x)
        wide = g.op("Cast", [g.codes(x, order)], to=6)  # int32
        lowest = g.constant(-int(np.iinfo(x.dtype).min), np.int32)
        index = g.op("Add", [wide, lowest])
        y = g.op("Gather", [g.constant(codes, step.output.dtype), index], axis=0)
        g.hold(step.output, y, order)

    def _softmax(self, step: Simple) -> None:
        x, *masks = step.inputs
        order = self.order(x)
        axis, scores = order.index(int(step.numbers["axis"].reshape(()))), self.real(x, order)
        for mask in masks:
            scores = self.graph.op("Add", [scores, self.real(mask, order)])
        if "hidden" in step.numbers:
            hidden = np.broadcast_to(step.numbers["hidden"], step.output.shape).transpose(order)
            given = self.graph.constant(hidden, bool), self.graph.constant(np.finfo(F32).min, F32)
            scores = self.graph.op("Where", [*given, scores])
        y = self.graph.op("Softmax", [scores], axis=axis)
        self.graph.hold(step.output, self.codes(y, step), order)
        self.doubt(step, "ONNX Runtime computes softmax in float32")


def _scaled(scale: F32, zero_point: int) -> Scaled:
    return Scaled(np.dtype(np.int8), scale, zero_point)
