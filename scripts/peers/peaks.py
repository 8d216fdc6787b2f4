"""Peaks of this machine: kernels that are bound by one thing each.

integer   accumulators in registers, one integer product each per step, nothing else
float     the same with fused multiply-adds on float32
memory    the sum of 256 MiB, several times what the caches hold
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from iree.compiler import ir

from jq.iree.compiler import HOST_FLAGS, compile_module
from jq.kernels import Kernel, detect
from jq.kernels.emit.builder import Builder, Tile
from jq.kernels.emit.dispatches import Operand, Output, dispatch, emit, link
from jq.kernels.emit.values import Index, vec
from jq.kernels.machine import dot as products
from jq.kernels.tensor import TensorType

GROUPS = 8  # workgroups: an even number of them for every thread
STEPS = 20_000
ACCUMULATORS = 12  # more than the latency of a product times how many start in a cycle
MEMORY = 256 << 20  # bytes
STREAMS, AHEAD = 4, 4  # places that are read in turns, and vectors of each


class Peak(Kernel):
    """`what` is `integer`, `float` or `memory`; the result is a number nobody needs."""

    what: str

    @property
    def label(self) -> str:
        return self.what

    @property
    def element(self) -> str:
        return "f32" if self.what == "float" else "i32"

    @property
    def operands(self) -> tuple[TensorType, ...]:
        if self.what == "memory":
            return (TensorType((GROUPS, MEMORY // 4 // GROUPS), "i32"),)
        if self.what == "float":
            return (TensorType((2, self.target.lanes), "f32"),)
        return (TensorType((2, self.target.lanes * self.target.dot.group), "i8"),)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((GROUPS, self.target.lanes), self.element),)

    @property
    def operations(self) -> int:
        """Multiplications and additions; for memory the bytes."""
        if self.what == "memory":
            return MEMORY
        group = self.target.dot.group if self.what == "integer" else 1
        return 2 * GROUPS * STEPS * ACCUMULATORS * self.target.lanes * group

    def stream(self, b: Builder, group: Index, source: ir.Value) -> list[ir.Value]:
        lanes = self.target.lanes
        if self.what == "memory":
            part = self.operands[0].shape[1] // STREAMS
            sums = [b.i32(0, lanes)] * (STREAMS * AHEAD)
            with b.loop(0, part, AHEAD * lanes, carry=sums) as loop:
                at = [
                    b.offset(loop.index, stream * part + i * lanes)
                    for i in range(AHEAD)
                    for stream in range(STREAMS)
                ]
                parts = [b.load(source, [group, i], vec(lanes, "i32")) for i in at]
                loop.carried = [b.add(a, p) for a, p in zip(loop.carried, parts, strict=True)]
            return loop.carried
        zero = b.f32(0.0, lanes) if self.what == "float" else b.i32(0, lanes)
        with b.loop(0, STEPS, carry=[zero] * ACCUMULATORS) as loop:
            loop.carried = [self._product(b, source, acc) for acc in loop.carried]
        return loop.carried

    def _product(self, b: Builder, source: ir.Value, acc: ir.Value) -> ir.Value:
        isa = self.target
        if self.what == "float":
            x, y = (b.load(source, [i, 0], vec(isa.lanes, "f32")) for i in (0, 1))
            return b.fma(x, y, acc)
        x, y = (products.weights(b, isa, source, [i, 0]) for i in (0, 1))
        return products.dot(b, isa, acc, x, y)


@emit.register
def emit_peak(peak: Peak, operands: Sequence[Operand]) -> list[ir.Value]:
    def body(
        b: Builder, ids: Sequence[Index], tensors: Sequence[ir.Value], tiles: Sequence[Tile]
    ) -> None:
        sums = peak.stream(b, ids[0], tensors[0])
        total = sums[0]
        for other in sums[1:]:
            total = b.add(total, other)
        b.store(total, tiles[0], [0, 0])

    output = Output(peak.results[0], (1, peak.target.lanes), lambda b, ids: [ids[0], 0])
    return dispatch(operands, [output], [GROUPS], body)


def peaks() -> list[Peak]:
    return [Peak(isa=detect().name, what=what) for what in ("integer", "float", "memory")]


def build(peak: Peak, path: Path) -> None:
    """A module whose `main` runs the kernel."""
    ins, outs = str(peak.operands[0]), str(peak.results[0])
    json = peak.to_json().replace('"', '\\"')
    text = f"""
        func.func private @peak({ins}) -> {outs} attributes {{jq.kernel = "{json}"}}
        func.func public @main(%x: {ins}) -> {outs} {{
          %y = func.call @peak(%x) : ({ins}) -> {outs}
          return %y : {outs}
        }}"""
    with ir.Context():
        module = ir.Module.parse(text)
        link(module)
        path.write_bytes(compile_module(str(module).encode(), flags=HOST_FLAGS).vmfb)


def inputs(peak: Peak) -> list[np.ndarray]:
    kind = peak.operands[0]
    return [np.full(kind.shape, 1e-3 if peak.what == "float" else 1, kind.dtype)]
