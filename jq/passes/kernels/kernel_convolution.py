"""Convolutions of activations with a constant filter are computed by kernels.

    composite "jq.contract" %x.codes, ..., %w.codes, %w.scale             (convolution)
    [add bias] [activation] [add residual] [composite "jq.quantize"]
    or  composite "jq.requantize" %x.codes, ..., %w.codes, ..., %bias, %multiplier (, %residual)
    or  composite "jq.integer" %x.codes, %w.codes, ...
    ->
    call @jq_convolution(pad(%x.codes, zero point), %w.packed, %init, %scale, ...)

Fires on one or two spatial dimensions, int8 x at most 8 bits; zero points are constant, or those of
samples, found at run time. Where every filter reads one channel, and every channel has one filter:
`Depthwise`; where the window is one pixel, and moves by one: `Gemm` of the pixels. Instructions
that read codes as unsigned get them so (`kernel-views`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import numpy as np

from jq import kernels
from jq.formats.requantize import Rescaling
from jq.formats.rescale import ResidualScale
from jq.ir import OPS, Program, at, dtype_of, evaluate, ir, replace, shape_of
from jq.ir.contract import match_contract
from jq.ir.ops.layout import CONVOLUTION
from jq.ir.requantize import Requantized, match_requantize
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._convolution import Convolved
from jq.passes.kernels._digits import digits, in_digits, is_small, upper_sums
from jq.passes.kernels._integer import IntegerContraction, contractions, match_contraction
from jq.passes.kernels._kernel import KernelDecisions, NoKernel, call_kernel, isa_of, unsigned_view
from jq.passes.kernels._tail import Tail
from jq.passes.rewrite import erase_dead

_Kernel = kernels.Convolution | kernels.Depthwise | kernels.Gemm
MAX_EDGES = 4  # tiles of a row that have code of their own


class KernelConvolution(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, decided = isa_of(cx.target), KernelDecisions()
        for op in contractions(program) if isa else ():
            product, codes = match_contract(op), match_requantize(op)
            integers = match_contraction(op)
            owner = codes or integers
            c = owner.contract if owner else product
            if c is None or c.op_type != CONVOLUTION or isa is None:
                continue
            try:
                pair = digits(c) if product else None
                lower = Lower(program, Convolved.of(program, pair[1] if pair else c), isa)
                if integers:
                    kernel = lower.integers(integers, cx.target.device.rescaling)
                else:
                    upper = Convolved.of(program, pair[0]) if pair else None
                    kernel = lower.codes(codes) if codes else lower.floats(upper)
                decided.kernel(kernel, c.name, **({"types": ("i8", "i8", "i32")} if pair else {}))
            except NoKernel as reason:
                decided.none(str(reason), c.name)
        erase_dead(program)
        return decided.write(program)


@dataclass(frozen=True)
class Lower:
    """Replaces a convolution and what follows by a call; each method gives the kernel's name."""

    program: Program
    conv: Convolved
    isa: str
    element: str = "i8"
    winograd: bool = False

    @property
    def unsigned(self) -> bool:
        return self.element == "i8" and kernels.get_isa(self.isa).dot.lhs_unsigned

    def floats(self, upper: Convolved | None) -> str:
        """A `jq.contract`; of lower digits, where `upper` is that of the upper ones."""
        conv, c = self.conv, self.conv.contract
        tail = Tail((), (), (c.op,))
        if dtype_of(c.op.results[0]) == np.float32 and conv.layout.channels_last:
            tail = Tail.behind(self.program, c.op, conv.filters, self.unsigned)
        _, parts = c.sides[0]
        row_scale = evaluate(self.program, parts["scale"])
        static, scale = row_scale is not None and row_scale.size == 1, conv.scale
        if row_scale is not None and static:
            scale = (row_scale.reshape(-1)[0] * scale).astype(np.float32)
        with at(tail.last):
            first, small = kernels.Dequantize(per_row=not static), is_small(conv.weight, conv.zero)
            whole = Lower(self.program, changed(upper, contract=c), self.isa) if upper else self
            both = in_digits(whole.described((first, *tail.steps))[0]) if upper and small else None
            if upper and not both:
                first = kernels.JoinDigits(per_row=not static, small=small)
            lower = whole if both else self
            kernel, operands = lower.kernel((first, *tail.steps), [scale], given=both)
            if both:
                operands.insert(1, self.input(kernel))
            if not static:
                per_sample = OPS.reshape(parts["scale"], [math.prod(shape_of(parts["scale"]))])
                operands.append(OPS.broadcast(per_sample, [conv.batch], [0]))
            if upper is not None and not both:
                sums, given = Lower(self.program, upper, self.isa).kernel((), [])
                operands += upper_sums(self.program, sums, given, operands[1], f"{c.name}/upper")
            return tail.lower(self.program, c.name, kernel, operands, conv.layout.result)

    def codes(self, r: Requantized) -> str:
        """A `jq.requantize`."""
        rescale = r.rescale
        bias, multiplier = (evaluate(self.program, v) for v in (r.bias, r.multiplier))
        if bias is None or multiplier is None:
            raise NoKernel("its bias is no constant")
        with at(r.contract.op):
            steps: list[kernels.Step] = [kernels.Dequantize()]
            values: list[ir.Value] = []
            if rescale.residual is not None and r.residual is not None:
                step, values = self._residual(rescale.residual, r.residual)
                steps.append(step)
            steps.append(kernels.RoundToCodes(rescale.low, rescale.high))
            kernel, operands = self.kernel(steps, [multiplier], bias)
            values.append(_scalar(rescale.zero_point, np.int32))
            shape = shape_of(r.contract.op.results[0])
            replace(r.contract.op, [self.call(kernel, operands + values, shape)])
        return kernel.name

    def integers(self, found: IntegerContraction, rescaling: Rescaling) -> str:
        """A `jq.integer`."""
        op, layout = self.conv.contract.op, self.conv.layout
        steps, bias, columns = found.rescale(rescaling, [layout.output_feature])
        with at(op):
            kernel, operands = self.kernel(steps, columns, bias)
            operands.append(_scalar(found.step.out.zero_point, np.int32))
            replace(op, [self.call(kernel, operands, shape_of(op.operation.results[0]))])
        return kernel.name

    def _residual(
        self, r: ResidualScale, codes: ir.Value
    ) -> tuple[kernels.AddCodes, list[ir.Value]]:
        bounded = math.isfinite(r.low) or math.isfinite(r.high)
        rows = self.conv.rows(unsigned_view(codes) if self.unsigned else codes)
        values = [rows, _scalar(r.factor, np.float32), _scalar(r.unit, np.float32)]
        values.append(_scalar(r.zero_point, np.int32))
        if bounded:
            values += [_scalar(bound, np.float32) for bound in (r.low, r.high)]
        if r.gain != 1:
            values.append(_scalar(r.gain, np.float32))
        return kernels.AddCodes(self.unsigned, bounded, r.gain != 1), values

    def described(self, steps: Sequence[kernels.Step]) -> tuple[_Kernel, np.ndarray]:
        """The kernel, and the weight that it packs."""
        conv = self.conv
        if conv.depthwise:
            return self._depthwise(steps), conv.weight[:, :, 0]
        if conv.pointwise and all(how != kernels.ROW for s in steps[:1] for how, _ in s.operands):
            return self._pointwise(steps), conv.weight[0, 0]
        described = self._described(steps, padded=True)
        zeros = conv.zero is not None
        kernel = kernels.Convolution(
            **described, filters=conv.filters, groups=conv.groups, column_zero=zeros
        )
        fewer = kernels.Winograd.of(kernel) if self.winograd else None
        return fewer or kernel, conv.weight

    def input(self, kernel: _Kernel) -> ir.Value:
        """The codes as the kernel reads them."""
        inside = isinstance(kernel, kernels.Depthwise) and kernel.padded
        return self.conv.input(self.unsigned, padded=not inside)

    def kernel(
        self,
        steps: Sequence[kernels.Step],
        columns: Sequence[np.ndarray],
        bias: np.ndarray | None = None,
        given: _Kernel | None = None,
    ) -> tuple[_Kernel, list[ir.Value]]:
        """The kernel (or the given one) and its operands up to the first step's by column."""
        conv = self.conv
        zero = conv.zero_point if isinstance(conv.zero_point, int) else 0
        kernel, weight = self.described(steps)
        kernel = given or kernel
        packed = kernel.pack(weight, bias, zero, conv.zero)
        operands = [self.input(kernel), self._packed(kernel, packed["weights"])]
        if "init" in packed:
            operands.append(self._weight("init", packed["init"]))
        if kernel.row_zero:
            operands += [conv.zero_points(), self._weight("colsum", packed["colsum"])]
        if kernel.column_zero:
            operands.append(self._weight("column_zero", packed["column_zero"]))
        if isinstance(kernel, kernels.Depthwise) and kernel.padded and not kernel.floats:
            operands.append(conv.padding_code(self.unsigned))
        for i, column in enumerate(columns):
            part = f"column_{i}" if len(columns) > 1 else "column_scale"
            operands.append(self._weight(part, kernel.pad_columns(column)))
        return kernel, operands

    def _pointwise(self, steps: Sequence[kernels.Step]) -> kernels.Gemm:
        described, (k, n) = self._described(steps, padded=True), self.conv.weight.shape[2:]
        pixels = math.prod(described[name] for name in ("batch", "height", "width"))
        same = {name: described[name] for name in ("isa", "element", "unsigned", "epilogue")}
        return kernels.Gemm(m=pixels, k=k, n=n, column_zero=self.conv.zero is not None, **same)

    def _weight(self, part: str, array: np.ndarray) -> ir.Value:
        return self.program.add_weight(f"{self.conv.contract.name}:{part}", array)

    def _packed(self, kernel: _Kernel, array: np.ndarray) -> ir.Value:
        conv = self.conv
        if conv.decoded is not None:
            return conv.in_lanes(*kernel.operands[1].shape)
        if conv.bits == 8 or array.dtype == np.int16:
            return self._weight("packed", array)
        shift = conv.shift
        if shift is not None and isinstance(kernel, kernels.Depthwise):
            shift = kernel.by_lane(shift)
        return conv.stored(self.program, array, shift)

    def _depthwise(self, steps: Sequence[kernels.Step]) -> kernels.Depthwise:
        """Padding is read as if it were there, unless windows leave the image almost everywhere."""
        window, codes = self.conv.window, self.element == "i8"
        parts = kernels.Depthwise.parts_of(self.conv.weight) if codes else 1
        if self.conv.plain_padding:
            described = self._described(steps, padded=False)
            kernel = kernels.Depthwise(**described, padding=window.padding, parts=parts)
            if sum(kernel.edges) <= MAX_EDGES:
                return kernel
        return kernels.Depthwise(**self._described(steps, padded=True), parts=parts)

    def _described(self, steps: Sequence[kernels.Step], padded: bool) -> dict[str, Any]:
        return {
            **self.conv.shape(padded),
            "isa": self.isa,
            "element": self.element,
            "row_zero": not isinstance(self.conv.zero_point, int),
            "unsigned": self.unsigned,
            "epilogue": tuple(steps),
        }

    def call(self, kernel: _Kernel, operands: list[ir.Value], shape: tuple[int, ...]) -> ir.Value:
        (result,) = call_kernel(self.program, kernel, operands, self.conv.contract.name)
        return self.conv.layout.result(result, shape)


def _scalar(value: float, dtype: Any) -> ir.Value:
    return OPS.constant(np.full(1, value, dtype))
