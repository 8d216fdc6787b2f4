"""Common base of the steps of a network that become ops between Q and DQ."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple
from jq.device.forms.onnx_graph import Graph
from jq.device.forms.table import method_of
from jq.device.network import Tensor
from jq.formats.requantize import Rescaling

F32: TypeAlias = np.float32
CHANNELS_FIRST = (0, 3, 1, 2)


def scale_of(tensor: Tensor) -> np.float32:
    """The one scale of a tensor.

    Raises:
        UserError: it has none, or several."""
    if tensor.scale is None or tensor.scale.size != 1:
        what = "no scale" if tensor.scale is None else "several scales"
        raise UserError(f"a tensor with {what} has no Q/DQ form", op=tensor.name)
    return F32(tensor.scale.reshape(-1)[0])


class Writer:
    """A graph in the making, with the layers whose codes may differ from the network's."""

    def __init__(self, rescaling: Rescaling, steps: Sequence[Simple]) -> None:
        self.rescaling = rescaling
        self.readers = Counter(t.name for step in steps for t in step.inputs)  # how many steps
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
        if "scales" not in step.numbers:  # else the program's is added so, too
            self.doubt(step, f"a bias behind {what} is added in float32")
        real = bias.reshape(-1) * (step.numbers["factor"].reshape(-1) * step.out.scale)
        if axis >= 0:
            real = real.reshape(-1, *[1] * (len(step.output.shape) - 1 - axis))
        return self.graph.op("Add", [y, self.graph.constant(real, F32)])

    def order(self, *xs: Tensor) -> tuple[int, ...]:
        """Axes in which an op on all elements alike needs the fewest transposes."""
        return self.graph.orders(([x for x in xs if x.data is None] or list(xs))[0])[0]

    def doubt(self, step: Simple, why: str) -> None:
        self.near_ties[step.name] = why
