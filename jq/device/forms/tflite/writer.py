"""The writer: steps on elements alike, moves, extremes and float ends, besides products."""

from functools import partial, partialmethod

import numpy as np

from jq.device.forms.canonical.base import Simple
from jq.device.forms.tflite.products import strides
from jq.device.forms.tflite.spelled import Spelled, or_spelled
from jq.device.network import Tensor
from jq.frontends.tflite.schema import TYPES
from jq.passes.integer._tflite import RESCALES
from jq.passes.integer.chain import multipliers


class Writer(Spelled):
    """Writes each step by the method of its kind."""

    # Element by element

    def _plain_rescale(self, step: Simple) -> None:
        """A rescale: a depthwise convolution has factors that are no quotient of scales."""
        (x,), bits = step.inputs, int(step.numbers["bits"].reshape(()))
        if x.dtype != "int8" or not 0 <= bits <= 6:
            raise self.lacking("a rescale of 16 bits, or one with more than 6 fractional bits,")
        self._sums(step, (1, 1), 1 << bits)

    _rescale = or_spelled(_plain_rescale, Spelled._spelled_rescale)

    def _kernel_rescale(self, step: Simple) -> None:
        kind = [*RESCALES.values()][int(step.numbers["own"].reshape(()))]
        self.finish(step, kind, step.inputs)

    def _kernel(self, kind: str, step: Simple) -> None:
        self.finish(step, kind, step.inputs)

    _unit_rows = partialmethod(_kernel, "L2_NORMALIZATION")
    _squares = partialmethod(_kernel, "SQUARED_DIFFERENCE")

    def _of_two(self, step: Simple, kind: str) -> None:
        """A sum: reference kernels have both terms in units of twice the larger scale, shifted by
        20 bits; XNNPACK has a multiplier for each."""
        grids = [t.scale.reshape(-1)[:1] for t in step.inputs if t.scale is not None]
        scales = np.concatenate(grids).astype(np.float32)
        if self.rescaling.rounding == "float32":
            minus = np.array([1, -1 if kind == "SUB" else 1])
            found = multipliers(scales * minus, step.out.scale)
            made = [step.numbers[k].tolist() for k in ("multipliers", "shift") if k in step.numbers]
            if found is None or made != [found[0].tolist(), [found[1]]]:
                raise self.lacking("a sum that is no sum of XNNPACK")
        else:
            bits = 20 if step.output.dtype == "int8" else 15
            if step.numbers["bias"].any() or int(step.numbers["bits"].reshape(())) != bits:
                raise self.lacking("a sum with a bias or with other fractional bits than kernels")
            powers = np.log2([*scales, step.out.scale])
            if bits == 15 and np.abs(powers - np.rint(powers)).max() < 2e-3:  # 1e-3 in kernels
                raise self.lacking("a sum of 16 bits of scales that kernels shift by")
            result = 2**bits * np.float64(np.float32(step.out.scale))
            factor = 2 * np.float64(scales.max()) / result
            if factor >= 1:
                raise self.lacking("a sum whose result has far finer steps, which kernels refuse")
            self.equal(step, factor)
        self.finish(step, kind, step.inputs)

    _add = or_spelled(partial(_of_two, kind="ADD"), partial(Spelled._spelled_sum, kind="add"))
    _subtract = or_spelled(partial(_of_two, kind="SUB"), partial(Spelled._spelled_sum, kind="sub"))

    def _plain_multiply(self, step: Simple) -> None:
        if step.numbers["bias"].any() or int(step.numbers["bits"].reshape(())):
            raise self.lacking("a product with a bias or with fractional bits")
        self.factor(step, 2.0**-16)
        self.scales(step, np.float32, *step.inputs)
        self.finish(step, "MUL", step.inputs)

    _multiply = or_spelled(_plain_multiply, Spelled._spelled_multiply)
    _matmul = or_spelled(Spelled._plain_matmul, Spelled._spelled_matmul)
    _matmul_own = Spelled._plain_matmul

    def _table(self, step: Simple) -> None:
        (x,), output, codes = step.inputs, self.given(step), step.table
        table = self.coded(codes, output)
        least = self.constant(np.full([1] * len(x.shape), len(codes) // 2))
        index = self.op("ADD", [self._number(x), least], self.fresh(least, x.shape, scale=None))
        self.op("GATHER", [table, index], output, axis=0)

    def _shared(self, kind: str, step: Simple) -> None:
        self.op(kind, self.shared(step), step.output, **step.attributes)

    _maximum, _minimum = partialmethod(_shared, "MAXIMUM"), partialmethod(_shared, "MINIMUM")
    _concatenate = partialmethod(_shared, "CONCATENATION")

    def _plain(self, kind: str, step: Simple) -> None:
        self.op(kind, step.inputs, step.output)

    # Comparisons and choices, of integers as they are: kernels would rescale codes to compare them

    def _number(self, x: Tensor, dtype: str = "int32", to: Tensor | None = None) -> Tensor:
        """The codes as numbers of another type, which stand for nothing else."""
        if x.dtype == dtype and to is None:
            return x
        if x.data is not None and to is None:
            return self.constant(x.data, dtype)
        made = to or self.fresh(x, x.shape, dtype=dtype, scale=None, zero_point=None)
        return self.op("CAST", [x], made, in_data_type=TYPES[x.dtype], out_data_type=TYPES[dtype])

    def _convert(self, step: Simple) -> None:
        self._number(step.inputs[0], step.output.dtype, step.output)

    def _compared(self, kind: str, step: Simple) -> None:
        self.op(kind, [self._number(x) for x in step.inputs], step.output)

    _greater, _equal = partialmethod(_compared, "GREATER"), partialmethod(_compared, "EQUAL")
    _greater_equal = partialmethod(_compared, "GREATER_EQUAL")

    def _select(self, step: Simple) -> None:
        self.op("SELECT_V2", [step.inputs[0], *self.shared(step)[1:]], step.output)

    def _gather_rows(self, step: Simple) -> None:
        self.op("GATHER", step.inputs, step.output, axis=0)

    _logical_and = partialmethod(_plain, "LOGICAL_AND")
    _logical_not = partialmethod(_plain, "LOGICAL_NOT")
    _logical_or, _integer_add = partialmethod(_plain, "LOGICAL_OR"), partialmethod(_plain, "ADD")
    _integer_subtract = partialmethod(_plain, "SUB")
    _integer_multiply, _integer_divide = partialmethod(_plain, "MUL"), partialmethod(_plain, "DIV")

    # Extremes

    def _max_pool(self, step: Simple) -> None:
        x, given = step.inputs[0], step.attributes
        x = self.padded(x, given["padding"], np.iinfo(x.dtype).min)
        size = dict(zip(("filter_height", "filter_width"), given["window"], strict=True))
        self.op("MAX_POOL_2D", [x], step.output, **size, **strides(given))

    # Moves, and float ends

    def _with(self, kind: str, key: str, step: Simple, **options: bool) -> None:
        """An operator with one of the step's attributes, if any, as its second operand."""
        more = [self.constant(np.atleast_1d(step.attributes[key]))] if key else []
        self.op(kind, [*step.inputs, *more], step.output, **options)

    _quantize = partialmethod(_with, "QUANTIZE", "")
    _dequantize = partialmethod(_with, "DEQUANTIZE", "")
    _max = partialmethod(_with, "REDUCE_MAX", "axis", keep_dims=True)
    _min = partialmethod(_with, "REDUCE_MIN", "axis", keep_dims=True)
    _transpose = partialmethod(_with, "TRANSPOSE", "permutation")
    _reverse = partialmethod(_with, "REVERSE_V2", "axis")
    _tile = partialmethod(_with, "TILE", "repeats")

    def _reshape(self, step: Simple) -> None:
        self.reshaped(step.inputs[0], step.output)

    def _slice(self, step: Simple) -> None:
        self.slice(step.inputs[0], step.attributes["start"], step.output)

    def _pad(self, step: Simple) -> None:
        (x,), given = step.inputs, step.attributes
        code = self.coded([given["value"]], x)
        self.op("PADV2", [x, self.constant(given["padding"]), code], step.output)
