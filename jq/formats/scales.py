"""The kinds of scale of a scaled format. Each is rounded as it is chosen, before any code."""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from jq.base.errors import FormatError
from jq.formats import checks, e8m0
from jq.formats.affine_math import scale_of_extent, zero_if_nan
from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.base import Encoding, Parts
from jq.formats.blocks import expand
from jq.formats.elements import Element
from jq.formats.minifloat import E4M3FN

F32, I8 = np.float32, np.dtype(np.int8)
Arrays = dict[str, np.ndarray]
Options = Mapping[str, Sequence[str]]
Storage = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


class Scale:
    """Parts with one factor a block: absmax / largest in `enc.scale_type`; of zeros, scale 1.

    `element_type`: the type of a factor, where it is stored as bits of int8: `enc.scale_type` has
    no meaning then."""

    element_type: np.dtype[Any] | None = None

    def options(self) -> Options:
        """Options of the encoding that it understands, and their values."""
        return {}

    def check(self, enc: Encoding) -> None:
        """Refuses what this kind of scale cannot do."""
        if self.element_type is None:
            checks.check_choice(enc, "scale type", enc.scale_type, checks.SCALE_TYPES)

    def storage(self, enc: Encoding) -> Storage:
        """Shape and type of the parts."""
        own = np.dtype(enc.scale_type) if self.element_type is None else I8
        return {"scale": (enc.grid, own)}

    def choose(self, absmax: np.ndarray, element: Element, enc: Encoding) -> Arrays:
        """The parts for blocks of largest magnitude `absmax` (f32 of `enc.grid`)."""
        scale, _ = scale_of_extent(NUMPY, absmax, element.largest)
        return {"scale": checks.as_scale(scale, enc)}

    def nearest(self, scale: np.ndarray, chosen: Arrays, enc: Encoding) -> Arrays:
        """The parts whose factors are nearest to `scale`, f32 of `enc.grid`, above 0; of those that
        `choose` gave for the tensor, what it has once for all is kept."""
        return {"scale": checks.as_scale(np.maximum(scale, checks.SMALLEST_SCALE), enc)}

    def of_data(
        self,
        ops: ArrayOps,
        absmax: Array,
        element: Element,
        enc: Encoding,
        largest: Array | None = None,
    ) -> Parts:
        """`choose` in a program; a block that holds an infinity or NaN gets no number. `largest`:
        the largest magnitude of the tensor that the blocks are a part of."""
        if enc.scale_type != "float32":
            raise FormatError(f"dynamic scales are float32, not {enc.scale_type}")
        return {"scale": scale_of_extent(ops, absmax, element.largest)[0]}

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Factors, f32 of `enc.grid`."""
        return ops.convert(parts["scale"], F32)

    def decode_elements(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """`decode` of parts whose `scale` has the type `element_type`."""
        return ops.convert(parts["scale"], F32)

    def applied(self, ops: ArrayOps, x: Array, parts: Parts, enc: Encoding) -> Array:
        """f32 of `enc.shape` times the scale of its block."""
        return ops.mul(x, expand(ops, self.decode(ops, parts, enc), enc))

    def divided(
        self, ops: ArrayOps, x: Array, parts: Parts, enc: Encoding, element: Element
    ) -> Array:
        """f32 of `enc.shape` divided by the scale that `of_data` found for its block."""
        return ops.div(x, expand(ops, self.decode(ops, parts, enc), enc))


class PowerOfTwoScale(Scale):
    """One e8m0 code per block; option `scale_rounding`, see `jq.formats.e8m0`."""

    element_type = np.dtype(ml_dtypes.float8_e8m0fnu)

    def options(self) -> Options:
        return {"scale_rounding": e8m0.SCALE_ROUNDINGS}

    def choose(self, absmax: np.ndarray, element: Element, enc: Encoding) -> Arrays:
        return {"scale": e8m0.choose(absmax, element, enc.option("scale_rounding", "floor"))}

    def nearest(self, scale: np.ndarray, chosen: Arrays, enc: Encoding) -> Arrays:
        """Nearest by their logarithms."""
        code = np.rint(np.log2(np.maximum(scale, checks.SMALLEST_SCALE))) + 127
        return {"scale": np.clip(code, 0, 254).astype(np.uint8).view(I8)}

    def of_data(
        self,
        ops: ArrayOps,
        absmax: Array,
        element: Element,
        enc: Encoding,
        largest: Array | None = None,
    ) -> Parts:
        return {"scale": e8m0.of_data(ops, absmax, element, enc.option("scale_rounding", "floor"))}

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        return e8m0.decode(ops, parts["scale"])

    def applied(self, ops: ArrayOps, x: Array, parts: Parts, enc: Encoding) -> Array:
        """Products in two steps: exact, wherever the result is a normal number."""
        first, second = e8m0.halves(ops, parts["scale"])
        return ops.mul(ops.mul(x, expand(ops, first, enc)), expand(ops, second, enc))

    def divided(
        self, ops: ArrayOps, x: Array, parts: Parts, enc: Encoding, element: Element
    ) -> Array:
        """A single product where no block has the scale 2^127, whose inverse is subnormal: that of
        a number below 2^128 is smaller where the largest element is 4 or more, however rounded."""
        inverse = {"scale": e8m0.opposite(ops, parts["scale"])}
        applied = super().applied if element.largest >= 4 else self.applied
        return applied(ops, x, inverse, enc)


class TwoLevelScale(Scale):
    """A float8_e4m3fn number per block times one float32 number for the tensor (NVFP4).

    tensor_scale = absmax of the tensor / (448 * largest); a block's scale is its absmax / (largest
    * tensor_scale), at least the smallest e4m3 number, so that it is never 0."""

    element_type = E4M3FN.element_type

    def storage(self, enc: Encoding) -> Storage:
        """`tensor_scale` has the tensor's rank, so that it moves through programs as `scale`."""
        return super().storage(enc) | {"tensor_scale": ((1,) * len(enc.shape), np.dtype(F32))}

    def choose(self, absmax: np.ndarray, element: Element, enc: Encoding) -> Arrays:
        largest, whole = element.largest, np.max(absmax, keepdims=True)
        tensor, _ = scale_of_extent(NUMPY, whole, E4M3FN.largest * largest)
        return self.nearest(absmax / F32(largest), {"tensor_scale": tensor}, enc)

    def nearest(self, scale: np.ndarray, chosen: Arrays, enc: Encoding) -> Arrays:
        tensor = chosen["tensor_scale"].reshape((1,) * scale.ndim)
        ratio = np.maximum(scale / tensor, F32(2.0**-9))
        return {"scale": E4M3FN.encode(ratio), "tensor_scale": tensor}

    def of_data(
        self,
        ops: ArrayOps,
        absmax: Array,
        element: Element,
        enc: Encoding,
        largest: Array | None = None,
    ) -> Parts:
        """The tensor's scale is that of the data, too: NaN or infinite where the data are."""
        if largest is None:
            largest = ops.reduce_max(absmax, range(len(enc.grid)))
        tensor, _ = scale_of_extent(ops, largest, E4M3FN.largest * element.largest)
        ratio = ops.div(absmax, element.largest)
        ratio = ops.div(ratio, ops.broadcast(tensor, enc.grid, range(len(enc.grid))))
        ratio = ops.maximum(zero_if_nan(ops, ratio), 2.0**-9)
        return {"scale": E4M3FN.codes(ops, ratio), "tensor_scale": tensor}

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        return self._times_tensor(ops, E4M3FN.decode(ops, parts["scale"]), parts, enc)

    def decode_elements(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        return self._times_tensor(ops, ops.convert(parts["scale"], F32), parts, enc)

    def _times_tensor(self, ops: ArrayOps, scale: Array, parts: Parts, enc: Encoding) -> Array:
        tensor = ops.broadcast(parts["tensor_scale"], enc.grid, range(len(enc.grid)))
        return ops.mul(scale, tensor)


FLOAT, POWER_OF_TWO, TWO_LEVEL = Scale(), PowerOfTwoScale(), TwoLevelScale()
