"""A quantize moves up through ops that only move or choose elements.

    quantize (transpose %x), %s, %z   ->  transpose (quantize %x, %s, %z)
    quantize (reduce_window max %x)   ->  reduce_window max (quantize %x)
    quantize (concatenate %x, %y)     ->  concatenate (quantize %x), (quantize %y)

The codes are the same (see `_selection`), and fewer bytes are moved. This is where the placement is
decided: `late` leaves every quantize in front of its contraction; `hybrid` moves it up where nobody
else reads the float result, and not to where there is more to quantize (but for pooling, whose
operand a contraction gives in codes); `early` moves it up as far as it goes. For given scales, one
a tensor."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from jq.base.deep import Steps, deep, every
from jq.formats import Encoding, affine_format
from jq.formats.integer_functions import Output
from jq.ir import OPS, Op, Program, at, ir, kind_of, maker, shape_of
from jq.ir.affine import compact
from jq.ir.markers import DEQUANTIZE, QUANTIZE, Marker, match, quantize
from jq.ir.ops.base import Sinking
from jq.ir.ops.integer import constant_or_weight
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.selection import elements, select_codes
from jq.ir.slicing import compute
from jq.passes.base import Pass, PassContext
from jq.passes.integer._ops import is_float
from jq.passes.integer._values import output_of, static_parameters, tabled
from jq.passes.rewrite import Rewrite, erase_dead
from jq.target.device_table import Device


# A dequantize moves down through ops that only move elements, to the op that computes.
#
#     transpose(dequantize(codes, scale)) -> dequantize(transpose(codes), transpose(scale))
#
# Fires for every op with a `Sinking` rule, inside loop bodies too; not where a format's
# stored blocks would be cut.
class SinkDequantize(Rewrite):
    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        rule = rule_of(op)  # a chain sinks in one sweep
        marker = match(op.operands[0], DEQUANTIZE) if isinstance(rule, Sinking) else None
        value = rule.sink(program, op, marker) if marker and isinstance(rule, Sinking) else None
        return None if value is None else [value]


class HoistQuantize(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        if cx.settings.placement == "late":
            return False
        hoist = _Hoist(program, cx.target.device, everywhere=cx.settings.placement == "early")
        for op in program.walk():
            if (marker := match(op, QUANTIZE)) and (key := _Key.of(program, marker)):
                hoist.run(marker, key)
        erase_dead(program)
        program.drop_dead()
        return bool(hoist.through)


@dataclass(frozen=True)
class _Key:
    """A quantize, whatever the shape."""

    encoding: Encoding
    out: Output
    own: str  # of a TFLite file

    @staticmethod
    def of(program: Program, marker: Marker) -> "_Key | None":
        out = output_of(program, marker)
        return None if out is None else _Key(marker.encoding.with_shape((), ()), out, marker.own)


@dataclass(eq=False)
class _Hoist:
    program: Program
    device: Device
    everywhere: bool
    known: dict[Any, ir.Value] = field(default_factory=dict)  # codes by value and key
    through: set[int] = field(default_factory=set)  # ops (by hash) that work on codes now

    def run(self, marker: Marker, key: _Key) -> None:
        x = marker.op.operands[0]
        if self._goes_through(x, key):
            marker.op.results[0].replace_all_uses_with(self._codes(x, key, marker.tensor))

    def _goes_through(self, x: ir.Value, key: _Key) -> bool:
        """True if `x` is the result of an op to move through."""
        if maker(x) is None or not is_float(x):
            return False
        places = elements(self.program, x.owner)
        if self._is_table(x, key.out):
            return False
        if not places or self.everywhere or hash(x.owner.operation) in self.through:
            return bool(places)
        sources = [x.owner.operands[i] for i in places]
        computed = [v for v in sources if compute(self.program, v) is None]
        pools = kind_of(x.owner) in ("stablehlo.reduce", "stablehlo.reduce_window")
        more = sum(math.prod(shape_of(v)) for v in computed) > math.prod(shape_of(x))
        return (pools or not more) and all(self._takes_codes(use.owner, key) for use in x.uses)

    def _is_table(self, x: ir.Value, out: Output) -> bool:
        """True for a choice that one table holds: `where(x > 0, x, f(x))` is a function of `x`."""
        if not self.everywhere or kind_of(x.owner) != "stablehlo.select":
            return False
        found = tabled(self.program, x)
        if found is None or "table" not in self.device.functions:
            return False
        leaf, _, codes = found
        return len(codes) <= self.device.for_codes(max(out.high, leaf.high)).table_entries

    def _takes_codes(self, reader: Op, key: _Key) -> bool:
        marker = match(reader, QUANTIZE)
        if marker is None:
            return hash(reader.operation) in self.through
        return _Key.of(self.program, marker) == key

    @deep
    def _codes(self, x: ir.Value, key: _Key, name: str) -> Steps[ir.Value]:
        """The codes of a value, right after it."""
        if (x, key) not in self.known:
            op = maker(x)
            place = at(x.owner.operations[0]) if op is None else at(op, after=True)
            self.known[x, key] = yield from self._computed(x, key, name, place)
        return self.known[x, key]

    def _computed(self, x: ir.Value, key: _Key, name: str, place: Any) -> Steps[ir.Value]:
        shape = shape_of(x)
        array, enc = compute(self.program, x), key.encoding.with_shape(shape, (0,) * len(shape))
        if array is not None:
            with place:
                return self._constant(array, enc, key.out, name)
        if self._goes_through(x, key):
            op = x.owner
            self.through.add(hash(op.operation))
            places = elements(self.program, op)
            chosen = (yield from every((self, op.operands[i], key, name) for i in places)) or ()
            with at(op):
                return select_codes(self.program, op, chosen)
        with place:
            given = static_parameters(enc, key.out.scale, key.out.zero_point)
            codes = quantize(self.program, x, enc, given, tensor=name, own=key.own)["codes"]
        for use in list(x.uses):
            other = match(use.owner, QUANTIZE)
            if other and other.op.operation != codes.owner and _Key.of(self.program, other) == key:
                other.op.results[0].replace_all_uses_with(codes)
        return codes

    def _constant(self, x: np.ndarray, enc: Encoding, out: Output, name: str) -> ir.Value:
        """Codes of a constant, as it is repeated."""
        fmt, small = affine_format(enc.format), compact(x)
        steps = np.rint(np.nan_to_num(small.astype(np.float32) / np.float32(out.scale)))
        codes = np.clip(steps + out.zero_point, out.low, out.high).astype(fmt.code_type)
        made = partial(constant_or_weight, self.program, name=f"{name}:constant")
        return OPS.spread(codes, x.shape, made)
