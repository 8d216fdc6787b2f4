"""Deciding on one operand: its encoding as the settings ask for it, if the device has it."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.calibration.range import Range
from jq.calibration.ranges import Ranges, site
from jq.formats import Encoding, get_format
from jq.formats.affine import affine_format, is_affine, unpacked
from jq.ir import Program, shape_of
from jq.ops.base import Role
from jq.planning.decisions import Declined, TensorPlan
from jq.planning.encodings import activation_block, encoding, stored_plan, weight_block
from jq.planning.operands import WeightUse, given_activation, op_name
from jq.settings import FLOAT, Settings, TensorSettings
from jq.target import Target


@dataclass
class TensorPlanner:
    """Plans single operands; each method raises `Declined` with the reason where it cannot."""

    program: Program
    target: Target
    ranges: Ranges
    unranged: list[str] = field(default_factory=list)  # sites whose range is not known

    def weight(self, use: WeightUse, settings: Settings) -> TensorPlan:
        if use.stored:
            return stored_plan(use)
        s, count = settings.weights, math.prod(use.shape)
        if s.format == FLOAT:
            raise Declined("a rule or setting keeps it float")
        if count < settings.min_elements:
            raise Declined(f"{count} elements, fewer than min_elements={settings.min_elements}")
        dtype = self.program.weights[use.name].dtype
        if dtype.kind not in "fV":
            raise Declined("the weight is already integer")
        if dtype.itemsize == 1:
            raise Declined(f"the weight is already {dtype}")
        self.has_weight(s)
        block = weight_block(use, s)
        enc = encoding(s, use.shape, block)
        get_format(s.format).check(enc)
        return TensorPlan("weight", enc, weight=use.name)

    def given(self, op: Any, role: Role) -> TensorPlan | None:
        """An operand that the model quantizes itself, in a way that the device has."""
        device = self.target.device
        enc = given_activation(self.program, op.operands[role.index], role)
        if enc is None or enc.scheme not in device.activation_schemes:
            return None
        if enc.granularity == "per-tensor" or "per-token" in device.activation_granularities:
            return TensorPlan("given", enc)
        return None

    def activation(
        self, op: Any, role: Role, settings: Settings, run: int | None = None
    ) -> TensorPlan:
        """`run`: see `activation_block`."""
        s, device = settings.activations, self.target.device
        shape = shape_of(op.operands[role.index])
        self.has(s.scheme, device.activation_schemes, "activations.scheme")
        if s.granularity == "per-channel":
            raise Declined("activations cannot be per-channel; they can be per-token or per-block")
        if not is_affine(s.format):
            raise Declined(f"activations cannot be {s.format}")
        if s.mode == "static":
            return self.static(site(op_name(op), role.index), s, shape)
        if not device.dynamic:
            raise Declined(
                f"target {self.target.name} has no dynamic quantization;"
                " set activations.mode=static"
            )
        self.has(s.granularity, device.activation_granularities, "activations.granularity")
        block = activation_block(s, shape, role, run)
        return TensorPlan("dynamic", unpacked(encoding(s, shape, block)))

    def static(self, where: str, s: TensorSettings, shape: tuple[int, ...]) -> TensorPlan:
        return self.fixed(self.seen(where, s), s, shape)

    def seen(self, where: str, s: TensorSettings) -> Range:
        """The calibrated range of a site."""
        if not self.target.device.static:
            raise Declined(
                f"target {self.target.name} has no static quantization;"
                " set activations.mode=dynamic"
            )
        self.has(
            "per-tensor", self.target.device.activation_granularities, "activations.granularity"
        )
        fmt = affine_format(s.format)
        seen = self.ranges.get(where, fmt.bits, s.scheme)
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

    def has_weight(self, wanted: TensorSettings | Encoding) -> None:
        """Declines a weight that the device cannot multiply."""
        device = self.target.device
        self.has(wanted.scheme, device.weight_schemes, "weights.scheme")
        self.has(wanted.granularity, device.weight_granularities, "weights.granularity")

    def has(self, wanted: str, offered: Collection[str], key: str) -> None:
        """Declines what the device lacks, and says what can be asked for instead."""
        if wanted not in offered:
            others = f"; set {key}={' or '.join(offered)}" if offered else ""
            raise Declined(f"target {self.target.name} has no {wanted} {key.split('.')[0]}{others}")
