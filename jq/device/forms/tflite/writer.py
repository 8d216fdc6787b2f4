"""The writer: steps on elements alike, moves, extremes and float ends, besides products."""

from dataclasses import replace

import numpy as np

from jq.device.forms.canonical.base import Simple
from jq.device.forms.tflite.products import Products
from jq.frontends.tflite.schema import VALID
from jq.passes.integer.float_sums import multipliers


class Writer(Products):
    """Writes each step by the method of its kind."""

    # Element by element

    def _rescale(self, step: Simple) -> None:
        """By a depthwise convolution: a factor need not be a quotient of scales."""
        (x,), bits = step.inputs, int(step.numbers["bits"].reshape(()))
        if not 0 <= bits <= 6:
            raise self.lacking("a rescale with more than 6 fractional bits")
        self._sums(step, x, (1, 1), 1 << bits)

    def _add(self, step: Simple) -> None:
        self._of_two(step, "ADD")

    def _subtract(self, step: Simple) -> None:
        self._of_two(step, "SUB")

    def _of_two(self, step: Simple, kind: str) -> None:
        """By reference kernels both terms are in units of twice the larger scale, shifted by 20
        bits; by XNNPACK each has a multiplier."""
        assert step.out is not None
        grids = [t.scale.reshape(-1)[:1] for t in step.inputs if t.scale is not None]
        scales = np.concatenate(grids).astype(np.float32)
        if self.rescaling.rounding == "float32":
            minus = np.array([1, -1 if kind == "SUB" else 1])
            found = multipliers(scales * minus, step.out.scale)
            made = [step.numbers[k].tolist() for k in ("multipliers", "shift") if k in step.numbers]
            if found is None or made != [found[0].tolist(), [found[1]]]:
                raise self.lacking("a sum that is no sum of XNNPACK")
        else:
            if step.numbers["bias"].any() or int(step.numbers["bits"].reshape(())) != 20:
                raise self.lacking("a sum with a bias or with other fractional bits than 20")
            largest = 2 * np.float64(scales.max())
            self.equal(step, largest / (2**20 * np.float64(np.float32(step.out.scale))))
        self.finish(step, kind, step.inputs)

    def _multiply(self, step: Simple) -> None:
        if step.numbers["bias"].any() or int(step.numbers["bits"].reshape(())):
            raise self.lacking("a product with a bias or with fractional bits")
        self.scales(step, *step.inputs)
        self.finish(step, "MUL", step.inputs)

    def _table(self, step: Simple) -> None:
        (x,), out = step.inputs, step.out
        assert out is not None
        codes = np.clip(np.rint(step.numbers["steps"]) + out.zero_point, out.low, out.high)
        output = replace(
            step.output,
            scale=np.array([out.scale], np.float32),
            zero_point=np.array([out.zero_point], np.int32),
        )
        table = replace(self.constant(codes, "int8", output.scale), zero_point=output.zero_point)
        wide = {"dtype": "int32", "scale": None}
        index = self.op(
            "CAST", [x], self.fresh(x, x.shape, **wide), in_data_type=9, out_data_type=2
        )
        least = self.constant(np.full([1] * len(x.shape), 128))
        index = self.op("ADD", [index, least], self.fresh(index, x.shape))
        self.op("GATHER", [table, index], output, axis=0)

    def _maximum(self, step: Simple) -> None:
        self.op("MAXIMUM", self.shared(step), step.output)

    def _minimum(self, step: Simple) -> None:
        self.op("MINIMUM", self.shared(step), step.output)

    # Extremes

    def _max_pool(self, step: Simple) -> None:
        x, given = step.inputs[0], step.attributes
        x = self.padded(x, given["padding"], -128)
        height, width = given["window"]
        options = {
            "padding": VALID,
            "stride_h": given["stride"][0],
            "stride_w": given["stride"][1],
            "filter_height": height,
            "filter_width": width,
        }
        self.op("MAX_POOL_2D", [x], step.output, **options)

    def _max(self, step: Simple) -> None:
        axis = self.constant([step.attributes["axis"]])
        self.op("REDUCE_MAX", [step.inputs[0], axis], step.output, keep_dims=True)

    def _min(self, step: Simple) -> None:
        axis = self.constant([step.attributes["axis"]])
        self.op("REDUCE_MIN", [step.inputs[0], axis], step.output, keep_dims=True)

    # Moves, and float ends

    def _quantize(self, step: Simple) -> None:
        self.op("QUANTIZE", step.inputs, step.output)

    def _dequantize(self, step: Simple) -> None:
        self.op("DEQUANTIZE", step.inputs, step.output)

    def _reshape(self, step: Simple) -> None:
        self.reshaped(step.inputs[0], step.output)

    def _transpose(self, step: Simple) -> None:
        order = self.constant(step.attributes["permutation"])
        self.op("TRANSPOSE", [step.inputs[0], order], step.output)

    def _reverse(self, step: Simple) -> None:
        axis = self.constant([step.attributes["axis"]])
        self.op("REVERSE_V2", [step.inputs[0], axis], step.output)

    def _concatenate(self, step: Simple) -> None:
        self.op("CONCATENATION", self.shared(step), step.output, axis=step.attributes["axis"])

    def _slice(self, step: Simple) -> None:
        self.slice(step.inputs[0], step.attributes["start"], step.output)

    def _pad(self, step: Simple) -> None:
        (x,), given = step.inputs, step.attributes
        code = replace(self.constant([given["value"]], "int8", x.scale), zero_point=x.zero_point)
        self.op("PADV2", [x, self.constant(given["padding"]), code], step.output)

    def _tile(self, step: Simple) -> None:
        repeats = self.constant(step.attributes["repeats"])
        self.op("TILE", [step.inputs[0], repeats], step.output)
