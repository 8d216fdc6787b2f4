"""The operators of each step of a network."""

from collections.abc import Sequence
from functools import partialmethod
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple
from jq.device.forms.table import method_of
from jq.device.forms.tosa import functions
from jq.device.forms.tosa.builder import WHOLE, Builder
from jq.device.network import Tensor
from jq.frontends.tosa.schema import PROPAGATE, TYPES


class Writer(Builder):
    """Writes each step by the method of its kind."""

    def step(self, step: Simple) -> None:
        self.name = step.name
        method_of(self, step, "TOSA's integer profile")(step)

    # Products

    def _window(self, kind: str, step: Simple) -> None:
        x, w = step.inputs
        given = step.attributes
        x, padding = self._exact(step, x, w.shape[1:3] if kind == "CONV2D" else w.shape[:2])
        attributes = {"pad": padding, "stride": given["stride"], "dilation": given["dilation"]}
        self._products(kind, step, x, w, attributes)

    _conv2d = partialmethod(_window, "CONV2D")
    _depthwise = partialmethod(_window, "DEPTHWISE_CONV2D")

    def _exact(self, step: Simple, x: Tensor, kernel: Sequence[int]) -> tuple[Tensor, list[int]]:
        """The input and its padding without what no window reads: strides have to divide."""
        padding, cut, given = list[int](), [0, 0], step.attributes
        for i, (low, high) in enumerate(given["padding"]):
            reach = (kernel[i] - 1) * given.get("dilation", (1, 1))[i]
            extra = (x.shape[1 + i] - 1 + low + high - reach) % given["stride"][i]
            padding += [low, max(0, high - extra)]
            cut[i] = max(0, extra - high)
        if any(cut):
            size = [x.shape[0], x.shape[1] - cut[0], x.shape[2] - cut[1], x.shape[3]]
            operands = [self.of(x), self.shape([0] * 4), self.shape(size)]
            name = self.op("SLICE", operands, (size, x.dtype))
            x = Tensor(name, tuple(size), x.dtype, x.scale, x.zero_point)
        return x, padding

    def _transposed(self, step: Simple) -> None:
        x, w = step.inputs
        padding = [v for pair in step.attributes["out_padding"] for v in pair]
        attributes = {"out_pad": padding, "stride": step.attributes["stride"]}
        self._products("TRANSPOSE_CONV2D", step, x, w, attributes)

    def _products(
        self, kind: str, step: Simple, x: Tensor, w: Tensor, attributes: dict[str, Any]
    ) -> None:
        """Sums of products with their bias; one for all that rescale it."""
        if (
            x.dtype not in ("int8", "int16")
            or w.dtype != "int8"
            or (w.zero_point is not None and w.zero_point.any())
        ):
            what = f"products of {x.dtype} by {w.dtype} are written of int8 or int16 by int8 with"
            raise UserError(f"{what} weights whose zero point is 0", op=step.name)

        def total(codes: str, zero: int, bias: np.ndarray) -> str:
            given = [self.constant([v], "int8") for v in (zero, 0)]
            operands = [codes, self.of(w), self.constant(bias, "int32"), *given]
            key = kind, *operands, str(attributes)
            if key not in self.sums or not self.shared_sums:
                options = attributes | {"local_bound": False, "acc_type": TYPES["int32"]}
                self.sums[key] = self.op(kind, operands, (shape, "int32"), **options)
            return self.sums[key]

        shape = step.output.shape
        if x.dtype == "int8":
            self.codes(
                total(self.of(x), x.zero, step.numbers["bias"]), step, step.numbers["factor"]
            )
            return
        none = np.zeros(shape[3], np.int32)
        sums = [total(codes, zero, none) for codes, zero in functions.halves(self, x)]
        self.end(functions.joined(self, sums, step), step)

    def _matmul(self, step: Simple) -> None:
        a, b = step.inputs
        if (a.dtype, b.dtype) != ("int8", "int8"):
            raise UserError(f"products of {a.dtype} by {b.dtype} are not written", op=step.name)
        zeros = [self.constant([t.zero], "int8") for t in (a, b)]
        made = step.output.shape, "int32"
        self.end(self.op("MATMUL", [self.of(a), self.of(b), *zeros], made), step)

    # Element by element

    def _rescale(self, step: Simple) -> None:
        bits = int(step.numbers["bits"].reshape(()))
        self.end(self.wide(step.inputs[0], bits), step)

    def _sum_of_two(self, kind: str, step: Simple) -> None:
        bits, unit = (float(step.numbers[k].reshape(())) for k in ("bits", "unit"))
        terms = []
        for x in step.inputs:
            shifted = self.wide(x, int(bits))
            assert x.scale is not None
            factor = x.scale.astype(np.float64).reshape(-1) / unit
            terms.append(self.rescale(shifted, factor, (x.shape, "int32")))
        self.end(self.op(kind, terms, (step.output.shape, "int32")), step)

    _add, _subtract = partialmethod(_sum_of_two, "ADD"), partialmethod(_sum_of_two, "SUB")

    def _multiply(self, step: Simple) -> None:
        bits, made = int(step.numbers["bits"].reshape(())), (step.output.shape, "int32")
        if bits < 0:
            self.end(functions.product(self, step, -bits), step)
            return
        zero = self.constant([0], "int8")
        total = self.op("MUL", [*map(self.wide, step.inputs), zero], made)
        self.end(self.rescale(total, np.array([2.0**bits]), made) if bits else total, step)

    _table, _softmax, _gather_rows = functions.table, functions.softmax, functions.gather_rows
    _normalization, _quotient = functions.normalization, functions.quotient

    def _extreme(self, kind: str, step: Simple) -> None:
        """The extreme along an axis of a tensor, or of two, which TOSA has of int32 alone."""
        given = {**step.attributes, "nan_mode": PROPAGATE}
        if len(step.inputs) == 1 or step.output.dtype == "int32":
            self.op(kind, [*map(self.of, step.inputs)], step.output, **given)
            return
        made = step.output.shape, "int32"
        found = self.op(kind, [*map(self._number, step.inputs)], made, **given)
        self.rescale(found, WHOLE, step.output)

    _maximum, _minimum = partialmethod(_extreme, "MAXIMUM"), partialmethod(_extreme, "MINIMUM")
    _max, _min = partialmethod(_extreme, "REDUCE_MAX"), partialmethod(_extreme, "REDUCE_MIN")

    def _number(self, x: Tensor) -> str:
        """A tensor as int32."""
        made = x.shape, "int32"
        if x.dtype in ("bool", "int32"):
            return self.of(x) if x.dtype == "int32" else self.op("CAST", [self.of(x)], made)
        return self.rescale(self.of(x), WHOLE, made)

    def _compared(self, kind: str, step: Simple) -> None:
        self.op(kind, [*map(self._number, step.inputs)], step.output)

    _greater, _equal = partialmethod(_compared, "GREATER"), partialmethod(_compared, "EQUAL")
    _greater_equal = partialmethod(_compared, "GREATER_EQUAL")

    def _select(self, step: Simple) -> None:
        if any(x.shape != step.output.shape for x in step.inputs):
            raise UserError("a choice by one condition for all has no form here", op=step.name)
        self._plain("SELECT", step)

    def _convert(self, step: Simple) -> None:
        (x,) = step.inputs
        if "bool" in (x.dtype, step.output.dtype):
            self.op("CAST", [self.of(x)], step.output)
        else:
            self.rescale(self.of(x), WHOLE, step.output)

    # Sums and extremes

    def _sum_pool(self, step: Simple) -> None:
        """A depthwise convolution by ones: what is padded adds nothing."""
        (x,), given = step.inputs, step.attributes
        channels = x.shape[3]
        ones = np.ones((*given["window"], channels, 1), np.int8)
        w = Tensor(self.constant(ones, "int8"), ones.shape, "int8", data=ones)
        numbers = step.numbers | {"bias": np.broadcast_to(step.numbers["bias"], [channels])}
        geometry = {**given, "dilation": [1, 1]}
        made = Simple("depthwise", step.name, (x, w), step.output, geometry, numbers, step.out)
        self._window("DEPTHWISE_CONV2D", made)

    def _sum(self, step: Simple) -> None:
        (x,) = step.inputs
        total, shape = self.wide(x), list(x.shape)
        for axis in step.attributes["axes"]:
            shape[axis] = 1
            total = self.op("REDUCE_SUM", [total], (list(shape), "int32"), axis=axis)
        self.end(total, step)

    def _max_pool(self, step: Simple) -> None:
        given = step.attributes
        x, padding = self._exact(step, step.inputs[0], given["window"])
        options = {"kernel": given["window"], "stride": given["stride"], "pad": padding}
        self.op("MAX_POOL2D", [self.of(x)], step.output, **options, nan_mode=PROPAGATE)

    # Moves

    def _reshape(self, step: Simple) -> None:
        (x,) = step.inputs
        self.op("RESHAPE", [self.of(x), self.shape(step.output.shape)], step.output)

    def _transpose(self, step: Simple) -> None:
        perms = step.attributes["permutation"]
        self.op("TRANSPOSE", [self.of(step.inputs[0])], step.output, perms=perms)

    def _plain(self, kind: str, step: Simple) -> None:
        self.op(kind, [*map(self.of, step.inputs)], step.output, **step.attributes)

    _logical_and, _reverse = partialmethod(_plain, "LOGICAL_AND"), partialmethod(_plain, "REVERSE")
    _logical_or, _concatenate = partialmethod(_plain, "LOGICAL_OR"), partialmethod(_plain, "CONCAT")
    _logical_not, _integer_add = partialmethod(_plain, "LOGICAL_NOT"), partialmethod(_plain, "ADD")
    _integer_subtract = partialmethod(_plain, "SUB")
    _integer_divide = partialmethod(_plain, "INTDIV")

    def _integer_multiply(self, step: Simple) -> None:
        none = self.constant([0], "int8")
        self.op("MUL", [*map(self.of, step.inputs), none], step.output)

    def _shaped(self, kind: str, step: Simple) -> None:
        given = [self.shape(v) for v in step.attributes.values()]
        self.op(kind, [self.of(step.inputs[0]), *given], step.output)

    _slice, _tile = partialmethod(_shaped, "SLICE"), partialmethod(_shaped, "TILE")

    def _pad(self, step: Simple) -> None:
        (x,), padding = step.inputs, step.attributes["padding"]
        amounts = self.shape([v for pair in padding for v in pair])
        value = self.constant([step.attributes["value"]], x.dtype)
        self.op("PAD", [self.of(x), amounts, value], step.output)
