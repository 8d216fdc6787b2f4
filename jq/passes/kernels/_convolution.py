"""A convolution as its kernels see it: two spatial dimensions, channels last."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.formats import NUMPY, Affine, Encoding, affine_format, get_format, packing
from jq.ir import OPS, Program, dtype_of, evaluate, ir, known_parts, shape_of, stablehlo
from jq.ir.contract import Contract
from jq.ir.ops.layout import Layout, Window, groups_of, with_edges
from jq.ir.types import tensor_type
from jq.passes.kernels._kernel import FLIP, NoKernel, unsigned_view


@dataclass(frozen=True)
class Convolved:
    """A convolution of int8 codes with a constant filter of at most 8 bits, or of floats.

    Attributes:
        codes: of the input, in the op's layout; or floats.
        zero_point: of the input; a value where it is found at run time.
        weight: HWIO codes of the filter, reversed where the window is; in a depthwise convolution
            minus their zero points, in int16 where int8 does not hold them.
        scale: f32 of every filter; of codes.
        zero: i32, the zero point of every filter; None where there is none left.
        bits: in which a code of the filter is stored.
        shift: i32, the zero points that are taken off stored codes of fewer than 8 bits.
        decoded: the floats of a filter HWIO that each call decodes; `weight` has its shape."""

    contract: Contract
    codes: ir.Value
    zero_point: int | ir.Value
    window: Window
    weight: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None
    bits: int = 8
    shift: np.ndarray | None = None
    decoded: ir.Value | None = None

    @staticmethod
    def of(program: Program, c: Contract) -> "Convolved":
        if any(not isinstance(side, tuple) for side in c.sides):
            raise NoKernel("one operand is float")
        (x_enc, x), (w_enc, w) = c.sides
        fmt = get_format(w_enc.format)
        if x_enc.format != "int8" or not isinstance(fmt, Affine) or fmt.bits > 8:
            raise NoKernel(f"no kernel for {x_enc.format} x {w_enc.format}")
        if (parts := known_parts(program, w)) is None:
            raise NoKernel("the filter is no constant")
        window = window_of(c)
        weight, scale, offset = _filter(w_enc, parts, window)
        zero = _zero_point(program, x, window.layout)
        bits = fmt.stored_bits(w_enc)
        plain = Convolved(c, x["codes"], zero, window, weight, scale, offset, bits)
        if bits < 8:  # a code minus a zero point would not fit
            return replace(plain._centred(), shift=offset) if plain.depthwise else plain
        return plain if offset is None else plain._without_zero(offset)

    def _centred(self) -> "Convolved":
        """Codes of fewer than 8 bits minus their zero points, which int8 holds, or `NoKernel`."""
        zero = 0 if self.zero is None else self.zero
        real = self.weight.astype(np.int32) - zero
        if abs(real).max(initial=0) > 127:
            raise NoKernel("codes of the filter are far from their zero points")
        return replace(self, weight=real.astype(np.int8), zero=None)

    def _without_zero(self, zero: np.ndarray) -> "Convolved":
        """Zero points taken from the codes, where what remains has a kernel."""
        real = self.weight.astype(np.int16) - zero.astype(np.int16)
        if real.min(initial=0) >= -128 and real.max(initial=0) <= 127:
            return replace(self, weight=real.astype(np.int8), zero=None)
        return replace(self, weight=real, zero=None) if self.depthwise else self

    def stored(self, program: Program, packed: np.ndarray, shift: np.ndarray | None) -> ir.Value:
        """A packed filter in as many bits as its codes, of which each call makes bytes, or words of
        four for matrix tiles. `shift`: the zero points that are missing in it, by its first and its
        last axis."""
        name, half = self.contract.name, np.int8(1 << self.bits - 1)
        whole = tensor_type(packed.shape, packed.dtype)
        packed = packed.view(np.int8)
        codes = packed if shift is None else (packed + shift).astype(np.int8)
        if codes.min() < -half or codes.max() >= half:
            raise NoKernel(f"the packed filter has more than {self.bits} bits")
        fields = program.add_weight(f"{name}:packed", packing.pack(codes + half, self.bits))
        value = OPS.sub(packing.unpack(OPS, fields, codes.shape, self.bits), int(half))
        if packed.shape != tuple(whole.shape):
            return stablehlo.bitcast_convert(whole, OPS.reshape(value, [*whole.shape, 4]))
        if shift is None:
            return value
        zero = program.add_weight(f"{name}:packed_zero", shift.astype(np.int8))
        return OPS.sub(value, OPS.broadcast(zero, codes.shape, range(codes.ndim)))

    def in_lanes(self, vectors: int, taps: int, lanes: int) -> ir.Value:
        """The decoded filter as `Depthwise` reads it: the last vector ends where channels do."""
        width = max(self.filters, lanes)
        rows = OPS.reshape(self.decoded, [taps, self.filters])
        rows = OPS.pad(rows, 0, [0, 0], [0, width - self.filters])
        whole = width // lanes
        first = OPS.slice(rows, [0, 0], [taps, whole * lanes])
        cut = OPS.transpose(OPS.reshape(first, [taps, whole, lanes]), [1, 0, 2])
        if whole == vectors:
            return cut
        last = OPS.reshape(OPS.slice(rows, [0, width - lanes], [taps, width]), [1, taps, lanes])
        return OPS.concatenate([cut, last], 0)

    @property
    def layout(self) -> Layout:
        return self.window.layout

    @property
    def groups(self) -> int:
        return groups_of(self.contract)

    @property
    def batch(self) -> int:
        return shape_of(self.codes)[self.layout.input_batch]

    @property
    def filters(self) -> int:
        return self.weight.shape[3]

    @property
    def depthwise(self) -> bool:
        """Every filter reads one channel, and every channel has one filter."""
        single = self.weight.shape[2] == 1 and self.groups == self.filters
        return single and self.groups > 1

    @property
    def pointwise(self) -> bool:
        """A product of pixels and filters, as they lie; zero points are known."""
        window, known = self.window, isinstance(self.zero_point, int)
        moves = self.weight.shape[:2] != (1, 1) or window.strides != (1, 1) or self.groups > 1
        return known and not moves and not any(map(any, window.edges))

    @property
    def plain_padding(self) -> bool:
        """Around the image, and there alone."""
        window = self.window
        return max(window.spacing) == 1 and min(p for pair in window.padding for p in pair) >= 0

    def zero_points(self) -> ir.Value:
        """i32 [B], of a zero point that is found at run time."""
        assert not isinstance(self.zero_point, int)
        flat = OPS.reshape(self.zero_point, [math.prod(shape_of(self.zero_point))])
        return OPS.broadcast(OPS.convert(flat, np.int32), [self.batch], [0])

    def padding_code(self, unsigned: bool) -> ir.Value:
        """i8 [B]: what padding is made of, in the view of the codes."""
        if isinstance(self.zero_point, int):
            code = np.full(self.batch, self.zero_point, np.int8)
            return OPS.constant(code ^ FLIP if unsigned else code)
        codes = OPS.convert(self.zero_points(), np.int8)
        return unsigned_view(codes) if unsigned else codes

    def input(self, unsigned: bool, padded: bool = True) -> ir.Value:
        """Codes [B, H, W, C], with their padding written out, at the current insertion point."""
        x = unsigned_view(self.codes) if unsigned else self.codes
        x = OPS.transpose(x, self.layout.input_order)
        batch, *spatial, channels = shape_of(x)
        x = OPS.reshape(x, [batch, *[1] * (2 - len(spatial)), *spatial, channels])
        if not padded:
            return x
        if isinstance(self.zero_point, int):
            point = np.asarray(self.zero_point, dtype_of(x))
            zero = OPS.constant(point ^ FLIP if unsigned else point)
        else:
            zero = OPS.reshape(self.padding_code(unsigned), [self.batch, 1, 1, 1])
        return with_edges(x, zero, self.window.edges)

    def shape(self, padded: bool = True) -> dict[str, Any]:
        """Fields common to the kernels' descriptions, for an input as `input` gives it."""
        d, window, shape = self.layout, self.window, shape_of(self.codes)
        spatial = [1] * (2 - len(d.input_spatial)) + [shape[axis] for axis in d.input_spatial]
        if padded:
            spatial = [
                n + max(n - 1, 0) * (apart - 1) + sum(pair)
                for n, apart, pair in zip(spatial, window.spacing, window.padding, strict=True)
            ]
        height, width = spatial
        batch, channels = shape[d.input_batch], shape[d.input_feature]
        if min(batch, channels, self.filters, *shape_of(self.contract.op.results[0])) < 1:
            raise NoKernel("an empty convolution")
        return {
            "batch": batch,
            "height": height,
            "width": width,
            "channels": channels,
            "window": window.sizes,
            "strides": window.strides,
            "dilations": window.dilations,
        }

    def rows(self, value: ir.Value) -> ir.Value:
        """A value of the result's layout as [pixels, F]."""
        moved = OPS.transpose(value, self.layout.output_order)
        return OPS.reshape(moved, [math.prod(shape_of(moved)[:-1]), self.filters])


def _zero_point(program: Program, parts: dict[str, ir.Value], d: Layout) -> int | ir.Value:
    """The zero point of the input: known, or a value of one element or one a sample."""
    if "zero_point" not in parts:
        return 0
    zero = parts["zero_point"]
    known = evaluate(program, zero)
    if known is not None and known.size == 1:
        return int(known.reshape(-1)[0])
    if any(n != 1 for axis, n in enumerate(shape_of(zero)) if axis != d.input_batch):
        raise NoKernel("zero points along other axes than samples")
    return zero


def window_of(c: Contract) -> Window:
    """The window, with two spatial axes; `NoKernel` of more."""
    window = Window.of(c, c.shapes[1])
    if len(window.sizes) not in (1, 2):
        raise NoKernel(f"no kernel for {len(window.sizes)} spatial dimensions")
    return window.widened(2)


def hwio(filter: np.ndarray, window: Window) -> np.ndarray:
    """A filter HWIO, reversed where the window is."""
    moved = filter.transpose(window.layout.kernel_order)
    flips = tuple(axis for axis, back in enumerate(window.reversal) if back)
    return np.ascontiguousarray(np.flip(moved if moved.ndim == 4 else moved[None], flips))


def _filter(
    enc: Encoding, parts: dict[str, np.ndarray], window: Window
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """HWIO codes, reversed where the window is, scale and zero point of every filter."""
    fmt = affine_format(enc.format)
    codes = hwio(np.asarray(fmt.codes(NUMPY, parts, enc)), window)
    scale = np.asarray(fmt.scale(NUMPY, parts, enc))
    if math.prod(scale.shape) not in (1, scale.shape[window.layout.kernel_out]):
        raise NoKernel("the filter has blocks along a contracted axis")

    def by_filter(grid: Any, dtype: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(grid).reshape(-1), [codes.shape[3]]).astype(dtype)

    zero = fmt.zero_point(NUMPY, parts, enc)
    offset = None if zero is None else by_filter(zero, np.int32)
    return codes, by_filter(scale, np.float32), offset
