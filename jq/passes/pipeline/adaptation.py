"""A pipeline as a target, or a model without calibration data, can carry it out."""

from dataclasses import replace

from jq.base.errors import UserError, known
from jq.passes.pipeline.loaded import Pipeline
from jq.planning.limits import limited_kinds, op_kinds
from jq.target.settings import FLOAT
from jq.target.target import Target


def for_target(pipeline: Pipeline, target: Target) -> Pipeline:
    """The pipeline as a target can carry it out.

    A device without floats gets its codes early; where it has no tensors of the format
    `activations.residual`, they have that of other activations.

    Raises:
        UserError: the device lacks what was asked for by name.
    """
    settings, asked, device = pipeline.settings, pipeline.explicit, target.device
    named = {"ops": (op_kinds(), device.ops or ()), "limits": (limited_kinds(), device.limits)}
    for key, (kinds, names) in named.items():
        for kind in names:
            if kind not in kinds:
                where = f"device.{key} of target {target.name}"
                raise UserError(f"unknown op {kind!r} in {where}", hint=known(kind, kinds))
    static = settings.activations.mode == "static" and settings.activations.format != FLOAT
    if device.integer_only and static and settings.placement != "early":
        if "placement" in asked:
            raise UserError(
                f"target {target.name} has no floats for placement={settings.placement}",
                hint="leave placement=early",
            )
        settings = settings.model_copy(update={"placement": "early"})
    wide = settings.activations.residual
    if wide is not None and wide not in device.tensors:
        if "activations.residual" in asked:
            offered = " or ".join(device.tensors) or "none"
            raise UserError(
                f"target {target.name} has no {wide} tensors",
                hint=f"activations.residual={offered}",
            )
        own = settings.activations.model_copy(update={"residual": None})
        settings = settings.model_copy(update={"activations": own})
    return replace(pipeline, settings=settings)


def without_ranges(pipeline: Pipeline, target: Target) -> Pipeline | None:
    """The pipeline with ranges of activations that are found at run time, in place of calibrated
    ones; None where that is not what it or the user asks for, or the target cannot do it."""
    own = pipeline.settings.activations
    asked = {"activations.mode", "activations.granularity"} & pipeline.explicit
    if own.format == FLOAT or own.mode == "dynamic" or asked or not target.device.dynamic:
        return None
    if pipeline.settings.placement == "early":
        return None
    activations = own.model_copy(update={"mode": "dynamic", "granularity": "per-token"})
    changed = {"activations": activations, "activation_products": "float"}
    return replace(pipeline, settings=pipeline.settings.model_copy(update=changed))
