"""Decisions of a plan: per op and per tensor a format, or the reason for declining."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from rich.table import Table

from jq.base.tables import Shown, plain_table
from jq.formats import Encoding

Kind = Literal["weight", "dynamic", "static", "given"]


@dataclass(frozen=True)
class TensorPlan:
    """The quantization of one operand.

    A weight is known by `weight` (its name) and its encoding is that of the whole stored tensor; an
    activation's encoding is that of the operand. `parameters` (scale, zero point) belong to static
    activations. `stored`: the weight came quantized and stays as it is; an activation that the
    model quantizes itself is `given`."""

    kind: Kind
    encoding: Encoding
    weight: str | None = None
    parameters: tuple[float, int | None] | None = None
    stored: bool = False

    def describe(self) -> str:
        enc = self.encoding
        rows = self.kind in ("dynamic", "given") and max(enc.block, default=0) == 1
        tokens = "per-token" if rows else enc.granularity
        came = " (stored)" if self.stored else " (given)" if self.kind == "given" else ""
        return f"{enc.format} {tokens} {enc.scheme}{came}"


@dataclass(frozen=True)
class OpPlan:
    """The decision on one op. `operands` has an entry for each operand that is quantized.

    `float_weights`: those that a rule or setting keeps float for this op, whatever others do."""

    name: str
    op: str
    decision: Literal["integer", "weight-only", "float"]
    operands: dict[int, TensorPlan] = field(default_factory=dict)
    reason: str = ""
    help: str = ""  # the end of the reason: what would help
    wanted: bool = False  # declined because a setting, a rule or the model asks for it
    note: str = ""  # what was chosen for the target, of an op that is quantized
    anew: str = ""  # why codes that the model brings are not those that it computes with
    float_weights: tuple[str, ...] = ()
    float_type: str = ""  # in which an op that stays float computes, where that is not its own
    halves: bool = False  # a float operand and a decoded weight are rounded to bfloat16

    @property
    def cause(self) -> str:
        """The reason without the help that ends it."""
        return self.reason.removesuffix(f"; {self.help}") if self.help else self.reason

    def to_dict(self) -> dict[str, Any]:
        def of(weights: bool) -> str | None:
            kinds = [
                t.describe() for t in self.operands.values() if (t.kind == "weight") == weights
            ]
            return " x ".join(kinds) or None

        return {
            "name": self.name,
            "op": self.op,
            "decision": self.decision,
            "weights": of(True),
            "activations": of(False),
            "reason": self.reason or self.note,
        }


@dataclass(frozen=True, repr=False)
class QuantPlan(Shown):
    """All decisions, in program order, and the encoding of every weight to be quantized.

    Weights that came quantized are not among `weights`: nothing is left to do. `edges`: tensors
    between regions, by the name that `jq.edge` gives them. `unused_rules` decide for no op; of
    these, `overruled` match ops that rules before them decide for. `doubts` are warnings on
    calibrated ranges, and `reference` the float model's outputs of the first calibration call."""

    ops: tuple[OpPlan, ...]
    weights: dict[str, Encoding]
    unused_rules: tuple[str, ...] = ()
    unranged: tuple[str, ...] = ()  # sites whose range was needed and is not known
    edges: dict[str, TensorPlan] = field(default_factory=dict)
    overruled: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    reference: tuple[np.ndarray, ...] = field(default=(), compare=False)

    @property
    def has_static(self) -> bool:
        """True if any activation is quantized with a calibrated range."""
        operands = (p for op in self.ops for p in op.operands.values())
        return bool(self.edges) or any(p.kind == "static" for p in operands)

    @property
    def is_float(self) -> bool:
        """True if no op is quantized, or computes in another type than its own."""
        return all(op.decision == "float" and not op.float_type for op in self.ops)

    def __getitem__(self, name: str) -> OpPlan:
        return next(op for op in self.ops if op.name == name)

    @cached_property
    def by_name(self) -> dict[str, OpPlan]:
        return {op.name: op for op in self.ops}

    def to_dict(self) -> dict[str, Any]:
        rows = [op.to_dict() for op in self.ops]
        doubts = {"doubts": list(self.doubts)} if self.doubts else {}
        return {"ops": rows, "unused_rules": list(self.unused_rules), **doubts}

    def table(self) -> Table:
        """One row an op: what is decided, its formats, or why it stays float."""
        table = plain_table("name", "op", "decision", "weights", "activations", "reason")
        for op in self.ops:
            table.add_row(*(str(value or "") for value in op.to_dict().values()))
        return table

    def notes(self) -> list[str]:
        unused = f"rules that decide for no op: {', '.join(self.unused_rules)}"
        return [unused] * bool(self.unused_rules) + [f"warning: {text}" for text in self.doubts]


class Declined(Exception):
    """Raised inside planning with the reason; never leaves this package.

    `help`: what would help. `wanted`: a setting, a rule or the model itself asks for it."""

    def __init__(self, reason: str, help: str = "", *, wanted: bool = False) -> None:
        super().__init__(f"{reason}; {help}" if help else reason)
        self.help, self.wanted = help, wanted
