"""Deciding on one operand: its encoding as the settings ask for it, if the device has it."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from jq.formats import Encoding, affine_format, get_format, is_affine, unpacked
from jq.ir import Op, Program, shape_of
from jq.ir.ops.base import Role
from jq.ir.ops.dataflow import Encodings
from jq.ir.ops.lattice import Encoded
from jq.ir.types import number_kind
from jq.planning import encodings
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges, site
from jq.planning.decisions import Declined, TensorPlan
from jq.planning.encodings import encoding, not_summed
from jq.planning.operands import WeightUse, blocks_behind, op_name
from jq.target.settings import FLOAT, Settings, TensorSettings
from jq.target.target import Target


@dataclass
class TensorPlanner:
    """Plans single operands; each method raises `Declined` with the reason where it cannot."""

    program: Program
    target: Target
    ranges: Ranges
    unranged: list[str] = field(default_factory=list)  # sites whose range is not known

    @cached_property
    def encodings(self) -> Encodings:
        """Encodings that the model itself has."""
        return Encodings(self.program)

    def weight(self, use: WeightUse, settings: Settings, kind: str) -> TensorPlan:
        if use.stored:
            return encodings.stored_plan(use)
        s, count = settings.weights, math.prod(use.shape)
        if s.format == FLOAT:
            raise Declined("a rule or setting keeps it float", wanted=True)
        if count < settings.min_elements:
            few = f"{count} elements, fewer than min_elements={settings.min_elements}"
            raise Declined(few, wanted=True)
        dtype = self.program.weights[use.name].dtype
        if number_kind(dtype) != "f":
            raise Declined("the weight is already integer")
        if dtype.itemsize == 1:
            raise Declined(f"the weight is already {dtype}")
        s = encodings.unpacked_rows(s, use.shape)
        self.has_weight(s, kind)
        enc = encoding(s, use.shape, encodings.weight_block(use, s))
        get_format(s.format).check(enc)
        return TensorPlan("weight", enc, weight=use.name)

    def given(self, op: Op, role: Role, settings: Settings | None = None) -> TensorPlan | None:
        """An operand that the model quantizes itself, in a way that the device has.

        One with numbers between the codes, at a bound, is quantized with the model's parameters
        where the settings quantize activations at all."""
        device, state = self.target.device, self.encodings.of(op.operands[role.index])
        if not isinstance(state, Encoded):
            return None
        enc = state.encoding
        if not is_affine(enc.format):
            return self._given_blocks(op, role)
        shared = all(enc.grid[a] == 1 for a in role.contracted) and max(enc.block, default=0) <= 1
        if not shared or enc.scheme not in self.target.activation_schemes(enc.format):
            return None
        if not state.whole and "per-token" not in device.activation_granularities:
            return None
        if not state.rounded:
            return TensorPlan("given", enc)
        if settings is None or settings.activations.format == FLOAT or state.scale is None:
            return None
        zero = state.zero_point if enc.scheme == "asymmetric" else None
        return TensorPlan("static", enc, parameters=(state.scale, zero))

    def _given_blocks(self, op: Op, role: Role) -> TensorPlan | None:
        """An operand already in blocks that the product can sum; kept as is: `fold-quantize` drops
        the second quantization."""
        enc, shape = blocks_behind(op.operands[role.index]), shape_of(op.operands[role.index])
        if enc is None or get_format(enc.format).integer_bits is None:
            return None
        wanted = encodings.tied_block(enc, shape, role)
        same = wanted is not None and not not_summed(op, enc.with_shape(shape, wanted), role)
        return TensorPlan("dynamic", enc) if same and enc.block == wanted else None

    def anew(self, op: Op, role: Role, settings: Settings) -> str:
        """The reason for quantizing a quantized operand again; empty where it is kept."""
        state = self.encodings.of(op.operands[role.index])
        if not isinstance(state, Encoded) or not is_affine(state.encoding.format):
            return ""
        if self.given(op, role, settings) is not None:
            return ""
        enc = state.encoding
        form = f"{enc.format} {enc.scheme} in blocks {enc.block}"
        return (
            f"an operand comes as {form}, which {self.target.name} has no product of: encoded anew"
        )

    def kept_float(self, op: Op, role: Role, s: TensorSettings) -> str:
        """Reason why an operand is computed with as it is: the model rounds it to blocks that are
        not multiplied, and it is not rounded twice, or its blocks do not fit. Empty for others."""
        value = op.operands[role.index]
        state = self.encodings.of(value)
        if isinstance(state, Encoded) and not is_affine(state.encoding.format):
            return f"the model rounds it to {state.encoding.format}, which is multiplied as floats"
        if s.format == FLOAT or is_affine(s.format):
            return ""
        enc = encoding(s, shape_of(value), (0,) * len(shape_of(value)))
        block = encodings.tied_block(enc, enc.shape, role)
        return not_summed(op, enc.with_shape(enc.shape, block), role) if block else ""

    def activation(
        self, op: Op, role: Role, settings: Settings, run: int | None = None
    ) -> TensorPlan:
        """`run`: see `activation_block`."""
        s, device = settings.activations, self.target.device
        shape = shape_of(op.operands[role.index])
        self.has(s.scheme, self.target.activation_schemes(s.format), "activations.scheme")
        if s.granularity == "per-channel":
            raise Declined("activations cannot be per-channel; they can be per-token or per-block")
        if not get_format(s.format).at_run_time:
            raise Declined(f"activations cannot be {s.format}")
        if s.mode == "static" and is_affine(s.format):
            return self.fixed(self.seen(site(op_name(op), role.index), s), s, shape)
        if not device.dynamic:
            what = f"target {self.target.name} has no dynamic quantization"
            raise Declined(what, "set activations.mode=static")
        self.has(s.granularity, device.activation_granularities, "activations.granularity")
        enc = encoding(s, shape, (0,) * len(shape))
        tied = encodings.tied_block(enc, shape, role)
        block = tied or encodings.activation_block(s, shape, role, run)
        return TensorPlan("dynamic", unpacked(enc.with_shape(shape, block)))

    def seen(self, where: str, s: TensorSettings) -> Range:
        """The calibrated range of a site."""
        device = self.target.device
        if not device.static:
            what = f"target {self.target.name} has no static quantization"
            raise Declined(what, "set activations.mode=dynamic")
        self.has("per-tensor", device.activation_granularities, "activations.granularity")
        seen = self.ranges.get(where, affine_format(s.format).bits, s.scheme)
        if seen is None:
            self.unranged.append(where)
            raise Declined("no calibrated range; this op was not reached by the calibration data")
        return seen

    def fixed(self, seen: Range, s: TensorSettings, shape: tuple[int, ...]) -> TensorPlan:
        """A tensor with one scale and zero point, those of a range."""
        fmt = affine_format(s.format)
        enc = unpacked(encoding(s, shape, (0,) * len(shape)))
        low, high = (np.full(enc.grid, v, np.float32) for v in (seen.low, seen.high))
        scale, zero = fmt.parameters(low, high, enc)
        point = None if zero is None else int(zero.reshape(-1)[0])
        return TensorPlan("static", enc, parameters=(float(scale.reshape(-1)[0]), point))

    def has_weight(self, wanted: TensorSettings | Encoding, kind: str) -> None:
        """Declines a weight that the device cannot multiply in this kind of op."""
        self.has(wanted.scheme, self.target.device.weight_schemes, "weights.scheme")
        offered = self.target.weight_granularities(kind)
        self.has(wanted.granularity, offered, "weights.granularity")

    def has(self, wanted: str, offered: Collection[str], key: str) -> None:
        """Declines what the device lacks, and says what can be asked for instead."""
        if wanted not in offered:
            help = f"set {key}={' or '.join(offered)}" if offered else ""
            raise Declined(f"target {self.target.name} has no {wanted} {key.split('.')[0]}", help)
