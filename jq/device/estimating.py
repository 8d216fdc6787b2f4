"""Cost of a model on a device, by the target file's own figures: cycles, bytes and memory.

A layer is a unit of the integer program (`jq.device.units`), or a product of floats with what leads
to it. It takes

    op_cycles + transposes + max(products / rate, elements / rate, DRAM bytes / rate,
                                 on-chip bytes / rate, parameters of channels)

cycles (`Hardware.bounds`): what it does at the same time is bounded by the slowest. Products are
those that the array of multipliers takes (`Array`); weights come from DRAM once a call; activations
lie on the chip, but for those that the greedy schedule places beyond its memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jq.base.errors import UserError
from jq.device.assumed import Planned, planned
from jq.device.results import Estimate
from jq.device.units import Unit, units
from jq.frontends.source import AnyModel
from jq.ir import Op, Program, dtype_of, ir, kind_of, shape_of
from jq.ir.ops.dims import Dims, operations
from jq.ir.ops.lookup import is_product, rule_of
from jq.passes.base import run_all
from jq.passes.integer.verify_integer import name_of
from jq.passes.lower_markers import LowerMarkers
from jq.passes.pipeline.file import Rules, SettingsLike
from jq.target.hardware import Hardware
from jq.target.target import Target


@dataclass(frozen=True)
class Buffer:
    """A tensor's place on the chip; unit `first` makes it, `last` is the last that reads it."""

    name: str
    bytes: int
    first: int
    last: int
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def meets(self, other: "Buffer") -> bool:
        """True if both are needed at one time."""
        return self.first <= other.last and other.first <= self.last


def estimate(
    model: AnyModel,
    target: str | Target = "ethos-u55",
    *,
    pipeline: str | None = None,
    settings: SettingsLike = None,
    rules: Rules = None,
) -> Estimate:
    """Cycles, bytes and memory of a model on a device; see the module for the formula.

    Args:
        model: see `jq.trace`; shapes are read, no data is.
        target: one whose file has a table `[hardware]`.
        pipeline: default is the first that the device accepts.
        settings: see `jq.compile`.
        rules: see `jq.compile`.

    Returns:
        `layers` with `operations` (two for a multiply-add), `bytes` (read and written anywhere),
        `cycles` and `bound_by`; `total_cycles`, `total_ms`; `peak_sram_bytes` with its
        `lower_bound_bytes` and the `buffers`; `utilization`, the share of the cycles that the
        products would take alone. It prints as a table.

    Raises:
        UserError: the target states no figures, or not the rate of a product that is needed.

    Example:
        ```python
        print(jq.estimate(model, "ethos-u55")["total_ms"])
        ```"""
    return estimated(planned(model, target, pipeline, settings, rules))


def estimated(found: Planned) -> Estimate:
    """`estimate` of what is planned already."""
    where = found.job.target
    if found.refused:
        raise found.refused
    if (hardware := where.hardware) is None:
        hint = "write one into a file of your own; `ethos-u55` has one"
        raise UserError(f"target {where.name} has no table [hardware] to estimate by", hint=hint)
    program = found.integer
    run_all([LowerMarkers(named=True)], program, found.job.context(found.plan))
    layers = units(program, floats=True, shared_sums=where.device.shared_sums)
    buffers = placed(_buffers(program, layers))
    outside = {b.name for b in buffers if b.end > hardware.sram_bytes}
    names = dict(zip(program.body.arguments, (i.name for i in program.inputs), strict=False))
    names |= {unit.result: unit.name for unit in layers}
    spilled = {v for v in names if names[v] in outside}
    costs = [_cost(program, unit, hardware, spilled) for unit in layers]
    cycles = sum(row["cycles"] for row, _ in costs)
    return Estimate(
        {
            "target": where.name,
            "pipeline": found.job.pipeline.name,
            "layers": [row for row, _ in costs],
            "total_cycles": cycles,
            "total_ms": cycles / hardware.clock_mhz / 1e3,
            "peak_sram_bytes": max((b.end for b in buffers), default=0),
            "lower_bound_bytes": lower_bound(buffers),
            "buffers": [vars(b) for b in buffers],
            "utilization": sum(busy for _, busy in costs) / cycles if cycles else 0.0,
        }
    )


def _cost(
    program: Program, unit: Unit, hardware: Hardware, outside: set[ir.Value]
) -> tuple[dict[str, Any], float]:
    """One layer, and the cycles of its products alone."""
    products = {op: operations(op) for op in unit.ops if is_product(op)}
    multiplying = sum(n / 2 * _padding(op, hardware) for op, n in products.items())
    activations = (*unit.inputs, unit.result)
    weights = _weight_bytes(program, unit)
    spilled = sum(_bytes(v) for v in activations if v in outside)
    moved = sum(hardware.stored(shape_of(v)) * dtype_of(v).itemsize for v in activations)
    sizes = [hardware.stored(shape_of(v)) for v in activations]
    bounds = hardware.bounds(multiplying, sum(sizes), weights + spilled, max(0, moved - spilled))
    shape, each = shape_of(unit.result), hardware.element_cycles
    if products and hardware.outputs_per_cycle:
        bounds["vector"] = sizes[-1] / hardware.outputs_per_cycle
        blocks = math.ceil(math.prod(shape[:-1]) / (hardware.block_pixels or math.inf))
        bounds["channels"] = max(1, blocks) * shape[-1] * hardware.channel_cycles if shape else 0
    elif unit.op in each:
        bounds["vector"] = max(sizes) * each[unit.op]
    transposes = sum(map(hardware.stored, _transposed(unit))) * each.get("transpose", 0)
    costs = {**bounds, "transpose": transposes, "overhead": hardware.op_cycles}
    row = {
        "name": unit.name,
        "op": unit.op,
        "operations": sum(products.values()) or sum(math.prod(shape_of(v)) for v in activations),
        "bytes": weights + sum(map(_bytes, activations)),
        "cycles": math.ceil(hardware.op_cycles + max(bounds.values()) + transposes),
        "bound_by": max(costs, key=lambda key: costs[key]),
    }
    return row, multiplying


def _padding(op: Op, hardware: Hardware) -> float:
    """Cycles of a multiply-add that is needed."""
    rule = rule_of(op)
    assert rule is not None
    found = rule.geometry(op)
    inner, outer = found.channels
    padded = hardware.array.padded(inner // found.groups, math.prod(found.window), outer)
    pair = " x ".join(dtype_of(v).name for v in list(op.operation.operands)[:2])
    if pair not in hardware.macs_per_cycle:
        there = ", ".join(hardware.macs_per_cycle)
        hint = f"it has: {there or 'none'}; `jaxq check` says what stays float and why"
        raise UserError(f"the target states no rate of {pair}", op=name_of(op), hint=hint)
    return padded / hardware.macs_per_cycle[pair]


def _transposed(unit: Unit) -> list[tuple[int, ...]]:
    """Shapes of activations whose axes are put in another order: by an op, or for a product, which
    has the axis that it sums over, and then the columns, last."""
    computed, found = set(unit.inputs), list[tuple[int, ...]]()
    for op in unit.ops:
        operands = list(op.operation.operands)
        given = [i for i, v in enumerate(operands) if v in computed]
        computed.update(op.operation.results if given else ())
        dims = Dims.match(op)
        if kind_of(op) == "stablehlo.transpose" and given:
            found.append(shape_of(operands[0]))
        elif dims is not None and len(given) == 1:  # by a weight
            shape = shape_of(operands[given[0]])
            summed = dims.contracted(given[0])
            if summed != set(range(len(shape) - len(summed), len(shape))):
                found.append(shape)
            if given == [1]:
                found.append(shape_of(op.operation.results[0]))
    return found


def _weight_bytes(program: Program, unit: Unit) -> int:
    """Bytes that are read of weights: of one that rows are taken from, these rows."""
    found: dict[ir.Value, int] = {}
    for op in unit.ops:
        for v in op.operation.operands:
            if program.weight_name(v) is not None:
                rows = kind_of(op) in ("stablehlo.gather", "stablehlo.dynamic_slice")
                taken = math.prod(shape_of(op.results[0])) * dtype_of(v).itemsize
                found[v] = max(found.get(v, 0), min(taken, _bytes(v)) if rows else _bytes(v))
    return sum(found.values())


def _bytes(value: ir.Value) -> int:
    return math.prod(shape_of(value)) * dtype_of(value).itemsize


def _buffers(program: Program, layers: list[Unit]) -> list[Buffer]:
    last = {v: i for i, unit in enumerate(layers) for v in unit.inputs}
    inputs = zip(program.inputs, program.body.arguments, strict=False)
    found = [Buffer(spec.name, _bytes(v), 0, last[v]) for spec, v in inputs if v in last]
    return found + [
        Buffer(unit.name, _bytes(unit.result), i, last.get(unit.result, len(layers) - 1))
        for i, unit in enumerate(layers)
    ]


def placed(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Greedy by size: the largest first, each at the lowest offset that is free all its time."""
    done: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (-b.bytes, b.first)):
        offset = 0
        for other in sorted((o for o in done if o.meets(buffer)), key=lambda o: o.offset):
            if offset + buffer.bytes <= other.offset:
                break
            offset = max(offset, other.end)
        done.append(replace(buffer, offset=offset))
    return sorted(done, key=lambda b: b.first)


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """Bytes that are needed at one time, however they are placed."""
    times = {b.first for b in buffers}
    return max((sum(b.bytes for b in buffers if b.first <= t <= b.last) for t in times), default=0)
