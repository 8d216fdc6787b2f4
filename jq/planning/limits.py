"""Whether a device can compute an op, by the limits of its target file: shapes alone decide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from jq.ir import Op, ir, shape_of, stablehlo
from jq.ir.build import attributes_of, integers
from jq.ir.values import kind_of
from jq.limits import OpLimits
from jq.ops.convolution import Layout, groups_of, padding_of
from jq.ops.dot_general import Dims
from jq.target import Target


@cache
def op_kinds() -> list[str]:
    """What `device.ops` can name: the ops of StableHLO without the prefix, and `depthwise`."""
    found = (getattr(kind, "OPERATION_NAME", "") for kind in vars(stablehlo).values())
    names = {name.removeprefix("stablehlo.") for name in found if isinstance(name, str) and name}
    return sorted({"depthwise", *names})


def limited_kinds() -> list[str]:
    """What limits can be about: an op, or `default` for those that have no limits of their own."""
    return ["default", *op_kinds()]


@dataclass(frozen=True)
class Refusal:
    """Why a device cannot compute an op, and what would help."""

    reason: str
    help: str = ""


@dataclass(frozen=True)
class OpShape:
    """What limits are about, read from one op; a product has no window, a sum no channels."""

    op: Op

    @cached_property
    def kind(self) -> str:
        """The StableHLO name, or `depthwise` for a convolution with a group for each channel."""
        name = kind_of(self.op).removeprefix("stablehlo.")
        return (
            "depthwise" if name == "convolution" and 1 < self.groups == self.channels[0] else name
        )

    @property
    def _convolves(self) -> bool:
        return kind_of(self.op) == "stablehlo.convolution"

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        values = [*self.op.operation.operands, *self.op.operation.results]
        return [shape_of(v) for v in values if isinstance(v.type, ir.RankedTensorType)]

    @cached_property
    def groups(self) -> int:
        return groups_of(self.op) if self._convolves else 1

    @cached_property
    def batch(self) -> int:
        if self._convolves:
            return self.shapes[0][Layout.of(self.op).input_batch]
        if kind_of(self.op) == "stablehlo.dot_general":
            return math.prod(self.shapes[0][a] for a, _ in Dims.of(self.op).batch)
        return 1

    @cached_property
    def channels(self) -> tuple[int, ...]:
        """Read and written; none for ops without channels."""
        if self._convolves:
            layout = Layout.of(self.op)
            return self.shapes[0][layout.input_feature], self.shapes[1][layout.kernel_out]
        if kind_of(self.op) == "stablehlo.dot_general":
            dims, (lhs, rhs) = Dims.of(self.op), self.shapes[:2]
            depth = math.prod(lhs[a] for a, _ in dims.contract)
            return depth, math.prod(rhs[a] for a in dims.free(1, len(rhs)))
        return ()

    def _axes(self, key: str) -> tuple[int, ...]:
        """A figure of the window along each of its axes; 1 where the op does not say."""
        return integers(self.op, key) or (1,) * len(self._window)

    @cached_property
    def _window(self) -> tuple[int, ...]:
        if self._convolves:
            return tuple(self.shapes[1][a] for a in Layout.of(self.op).kernel_spatial)
        return integers(self.op, "window_dimensions")

    @cached_property
    def dilation(self) -> tuple[int, ...]:
        return self._axes("rhs_dilation" if self._convolves else "window_dilations")

    @cached_property
    def kernel(self) -> tuple[int, ...]:
        """What the window spans along each axis."""
        return tuple((n - 1) * d + 1 for n, d in zip(self._window, self.dilation, strict=True))

    @cached_property
    def stride(self) -> tuple[int, ...]:
        return self._axes("window_strides")

    @cached_property
    def transposed(self) -> bool:
        return (
            max(self._axes("lhs_dilation" if self._convolves else "base_dilations"), default=1) > 1
        )

    @cached_property
    def padding(self) -> list[tuple[int, int]]:
        if self._convolves:
            return padding_of(self.op)
        found = attributes_of(self.op).get("padding") if self._window else None
        return (
            [] if found is None else [(int(a), int(b)) for a, b in np.array(found).reshape(-1, 2)]
        )


def refusal(op: Op, target: Target) -> Refusal | None:
    """Why the device has no such op on codes, whatever the formats; None where it has."""
    shape, device = OpShape(op), target.device
    name = kind_of(op).removeprefix("stablehlo.")
    if device.ops is not None and not {name, shape.kind} & set(device.ops):
        return Refusal(f"target {target.name} has no quantized {name}")
    for reason, help in _exceeded(shape, device.of(shape.kind)):
        return Refusal(f"target {target.name}: {reason}", help)
    return None


def _exceeded(s: OpShape, limits: OpLimits) -> Iterator[tuple[str, str]]:
    """Limits that an op exceeds: what it has and what there may be, and what would help."""
    smaller = "split the op into several, or choose other sizes in the model"
    figures = (
        ("rank", max(map(len, s.shapes), default=0), limits.max_rank, "merge axes by a reshape"),
        ("axis", max((n for d in s.shapes for n in d), default=0), limits.max_size, smaller),
        ("batch", s.batch, limits.max_batch, "export the model with a batch of 1"),
        ("kernel", max(s.kernel, default=1), limits.max_kernel, smaller),
        ("kernel area", math.prod(s.kernel), limits.max_kernel_area, smaller),
        ("stride", max(s.stride, default=1), limits.max_stride, "use several smaller strides"),
        ("dilation", max(s.dilation, default=1), limits.max_dilation, "use a smaller dilation"),
        ("channels", max(s.channels, default=0), limits.max_channels, smaller),
    )
    for what, found, most, help in figures:
        if most is not None and found > most:
            yield f"{s.kind} with {what} {found}; at most {most}", help
    multiple = limits.channel_multiple
    if odd := [n for n in s.channels if n % multiple]:
        padded = ", ".join(str(-(-n // multiple) * multiple) for n in odd)
        reason = f"{s.kind} with {odd[0]} channels, no multiple of {multiple}"
        yield reason, f"pad the weights with zeros to {padded} channels"
    if limits.equal_padding and any(high - low not in (0, 1) for low, high in s.padding):
        pairs = ", ".join(f"{low}+{high}" for low, high in s.padding)
        yield f"{s.kind} with padding {pairs}, not alike on both sides", "pad by an op of its own"
    if s.transposed and not limits.transposed:
        yield f"no transposed {s.kind}", "use a resize and a convolution"
    if s.groups > 1 and (
        limits.groups == "none" or (limits.groups == "depthwise" and s.kind != "depthwise")
    ):
        yield f"{s.kind} with {s.groups} groups", "split it into a convolution for each group"
