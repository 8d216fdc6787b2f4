"""A quantized program as a JAX function that can be trained, and its parameters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jq.base.errors import UserError
from jq.base.progress import Progress, Stages
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import plan_job
from jq.formats import Encoding, affine_format
from jq.frontends.source import AnyModel, Data
from jq.frontends.trainable import Unsupported, as_function
from jq.ir import OPS, Op, Program, at, context, dtype_of, ir
from jq.ir.build import replace
from jq.ir.encodings import FAKE_QUANT, attributes_of
from jq.ir.markers import composite
from jq.ir.quantized.edges import edge_name
from jq.ir.values import maker
from jq.mixed_precision.auto import settle
from jq.passes.pipeline.file import Rules, SettingsLike
from jq.passes.qdq.place_weights import keep_floats
from jq.planning.calibration.ranges import Ranges
from jq.planning.decisions import QuantPlan, TensorPlan
from jq.planning.operands import contractions, op_name

ENDS = ("low", "high")  # of a range that is learned, after the name of its tensor


class Quantized(NamedTuple):
    """The fake-quantized function of a model.

    Attributes:
        fn: `fn(params, *inputs)`: the model with its operands rounded as the plan says, for inputs
            of the shapes that the model was traced with. It can be jitted and differentiated.
        params: float arrays by name: weights, and the ends of the range of each tensor that has a
            calibrated one, as `NAME:low` and `NAME:high`."""

    fn: Callable[..., Any]
    params: dict[str, Any]


def quantized(
    model: AnyModel,
    pipeline: str = "int8-static",
    target: str = "llvm-cpu",
    calibration: Data = None,
    *,
    ranges: Ranges | str | Path | None = None,
    settings: SettingsLike = None,
    rules: Rules = None,
    allow_dynamic: bool = False,
    progress: Progress | None = None,
) -> Quantized:
    """The function that a pipeline makes of a model, with fake quantization in place of integers,
    to go on training with labels.

    Weights start where recovery leaves them (scaled, rotated), ranges where calibration does. A
    rounded value passes its gradient on as if it were not rounded (the straight-through estimator),
    one of bfloat16 in bfloat16; what a range cuts off moves the range (Choi et al. 2018, PACT). The
    trained function is a model like any other: `jq.compile` takes its fake quantization for what it
    is, so that the artifact has the codes that were trained.

    The arguments that are not listed are those of `jq.compile`.

    Args:
        model: see `jq.trace`.

    Raises:
        UserError: as `jq.compile`; the model is quantized already; a part has no gradient.

    Example:
        ```python
        fn, params = jq.quantized(model, "int8-static")
        gradients = jax.grad(lambda p: fn(p, *model.example_inputs).sum())(params)
        params = jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients)
        compiled = jq.compile(jq.Model(fn, params, model.example_inputs), "int8-static")
        ```"""
    stages = Stages.shown(progress)
    request = Request(
        *(pipeline, target, settings, rules, calibration, ranges, allow_dynamic), stages=stages
    )
    job = settle(prepare_job(model, request), stages)
    plan = plan_job(job, stages)
    operands = [p for op in plan.ops for p in op.operands.values()]
    if job.program.encodings or any(p.kind == "given" or p.stored for p in operands):
        hint = "give the float model"
        raise UserError("the model is quantized already: its codes cannot be trained", hint=hint)
    program = job.program.clone()
    _place(program, plan)
    program.drop_unused_weights()
    try:
        return Quantized(*as_function(program))
    except Unsupported as reason:
        raise UserError(f"the model cannot be trained: {reason}") from reason


def _place(program: Program, plan: QuantPlan) -> None:
    """Puts fake quantization where the plan has codes; the ends of ranges become weights."""
    keep_floats(program, plan)
    for name, enc in plan.weights.items():
        weight = program.weight(name)
        with context(), ir.InsertionPoint.at_block_begin(program.body), ir.Location.name(name):
            rounded = _fake(program, weight, enc)
        weight.replace_all_uses_except(rounded, rounded.owner.operation)
    plans = {op.name: op for op in plan.ops}
    for op, rule in list(contractions(program)):
        if (planned := plans.get(op_name(op))) is None:
            continue
        if kind := planned.float_type:
            for role in rule.roles(op):
                value = op.operands[role.index]
                with at(op):
                    op.operands[role.index] = OPS.convert(OPS.convert(value, kind), dtype_of(value))
        for index, p in planned.operands.items():
            edge = maker(op.operands[index])
            same = plan.edges.get((edge and edge_name(edge)) or "")
            if p.kind != "weight" and (same is None or same.encoding != p.encoding):
                name = f"{op_name(op)}:{index}"
                op.operands[index] = _activation(program, op, op.operands[index], p, name)
    for op in list(program.walk()):
        if name := edge_name(op) or "":
            value, edge_plan = op.operands[0], plan.edges.get(name)
            if edge_plan is not None:
                value = _activation(program, op, value, edge_plan, name)
            replace(op, [value])


def _activation(program: Program, op: Op, x: ir.Value, p: TensorPlan, name: str) -> ir.Value:
    """`x` in front of `op`, rounded as the plan says."""
    given = p.parameters and zip(ENDS, _range(p.encoding, *p.parameters), strict=True)
    ends = [program.add_weight(f"{name}:{end}", np.asarray(v)) for end, v in given or ()]
    with at(op):
        return _fake(program, x, p.encoding, *ends)


def _range(enc: Encoding, scale: float, zero: int | None) -> tuple[Any, Any]:
    """The smallest and largest value of a scale and zero point: those that give them back."""
    fmt = affine_format(enc.format)
    low, high = (np.float32(scale) * np.float32(v - (zero or 0)) for v in fmt.limits(enc))
    for top in (high, np.nextafter(high, np.float32(0)), np.nextafter(high, np.float32(np.inf))):
        found, point = fmt.parameters(np.full(enc.grid, low), np.full(enc.grid, top), enc)
        if float(found.ravel()[0]) == scale and (point is None or point.ravel()[0] == zero):
            return low, top
    return low, high


def _fake(program: Program, x: ir.Value, enc: Encoding, *range: ir.Value) -> ir.Value:
    """The marker of fake quantization, for `evaluate.run`, which has a rule for it."""
    said, operands = attributes_of(enc), [x, *range]
    return composite(program, FAKE_QUANT, "", said, operands, lambda _, args: [args[0]])[0]
