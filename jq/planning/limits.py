"""Limits of a device on the shapes of ops, from its target file: shapes alone decide."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from jq.ir import Op, ir, shape_of, stablehlo
from jq.ir.ops.geometry import Geometry, of_window
from jq.ir.ops.lookup import known_ops
from jq.ir.values import short_kind
from jq.target.device_table import OpLimits
from jq.target.target import Target


@cache
def op_kinds() -> list[str]:
    """Names for `device.ops`: the ops of StableHLO without the prefix, and `depthwise`."""
    found = (getattr(kind, "OPERATION_NAME", "") for kind in vars(stablehlo).values())
    names = {name.removeprefix("stablehlo.") for name in found if isinstance(name, str) and name}
    return sorted({"depthwise", *names})


@dataclass(frozen=True)
class Refusal:
    """Reason why a device cannot compute an op, and what would help.

    `by_shape`: it exceeds a limit, so that no function computes it either."""

    reason: str
    help: str = ""
    by_shape: bool = False


@dataclass(frozen=True)
class OpShape:
    """Figures that limits read from one op; a product has no window, a sum no channels."""

    op: Op

    @cached_property
    def kind(self) -> str:
        """The StableHLO name, or `depthwise` for a convolution with a group for each channel."""
        return "depthwise" if self.geometry.depthwise else short_kind(self.op)

    @cached_property
    def geometry(self) -> Geometry:
        rule = known_ops().get(short_kind(self.op))
        return rule.geometry(self.op) if rule else of_window(self.op)

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        values = [*self.op.operands, *self.op.results]
        return [shape_of(v) for v in values if isinstance(v.type, ir.RankedTensorType)]

    @cached_property
    def kernel(self) -> tuple[int, ...]:
        """The extent of the window along each axis."""
        g = self.geometry
        return tuple((n - 1) * d + 1 for n, d in zip(g.window, g.dilation, strict=True))

    @property
    def transposed(self) -> bool:
        return max(self.geometry.interior, default=1) > 1


def refusal(op: Op, target: Target) -> Refusal | None:
    """Reason why the device has no such op on codes, whatever the formats; None where it has."""
    shape, device = OpShape(op), target.device
    name = short_kind(op)
    exceeded = [*_exceeded(shape, device.of(shape.kind))]
    if device.ops is not None and not {name, shape.kind} & set(device.ops):
        reason = f"target {target.name} has no quantized {name}"
        return Refusal(reason, by_shape=bool(exceeded))
    for reason, help in exceeded:
        return Refusal(f"target {target.name}: {reason}", help, by_shape=True)
    return None


def _exceeded(s: OpShape, limits: OpLimits) -> Iterator[tuple[str, str]]:
    """Limits that an op exceeds: what it has and what there may be, and what would help."""
    g, smaller = s.geometry, "split the op into several, or choose other sizes in the model"
    figures = (
        ("rank", max(map(len, s.shapes), default=0), limits.max_rank, "merge axes by a reshape"),
        ("axis", max((n for d in s.shapes for n in d), default=0), limits.max_size, smaller),
        ("batch", g.batch, limits.max_batch, "export the model with a batch of 1"),
        ("kernel", max(s.kernel, default=1), limits.max_kernel, smaller),
        ("kernel area", math.prod(s.kernel), limits.max_kernel_area, smaller),
        ("stride", max(g.stride, default=1), limits.max_stride, "use several smaller strides"),
        ("dilation", max(g.dilation, default=1), limits.max_dilation, "use a smaller dilation"),
        ("channels", max(g.channels, default=0), limits.max_channels, smaller),
    )
    for what, found, most, help in figures:
        if most is not None and found > most:
            yield f"{s.kind} with {what} {found}; at most {most}", help
    multiple = limits.channel_multiple
    if odd := [n for n in g.channels if n % multiple]:
        padded = ", ".join(str(-(-n // multiple) * multiple) for n in odd)
        reason = f"{s.kind} with {odd[0]} channels, no multiple of {multiple}"
        yield reason, f"pad the weights with zeros to {padded} channels"
    if limits.equal_padding and any(high - low not in (0, 1) for low, high in g.padding):
        pairs = ", ".join(f"{low}+{high}" for low, high in g.padding)
        yield f"{s.kind} with padding {pairs}, not alike on both sides", "pad by an op of its own"
    if s.transposed and not limits.transposed:
        yield f"no transposed {s.kind}", "use a resize and a convolution"
    if g.groups > 1 and (
        limits.groups == "none" or (limits.groups == "depthwise" and s.kind != "depthwise")
    ):
        yield f"{s.kind} with {g.groups} groups", "split it into a convolution for each group"
