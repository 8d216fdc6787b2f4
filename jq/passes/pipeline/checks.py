"""Loads a pipeline by name or path, and checks it before anything slow begins."""

import warnings
from dataclasses import replace
from typing import Any

from jq.base.errors import UserError, check_known, known
from jq.ir.ops.lookup import contraction_names
from jq.passes.base import Recovery
from jq.passes.order import REMOVED
from jq.passes.pipeline.file import Pipeline, PipelineFile, flat_settings, read_pipeline
from jq.planning.calibration.observer import get_observer
from jq.planning.limits import op_kinds
from jq.target import FLOAT, Settings, Target
from jq.target.rules import Rule, apply_overrides, check_rule


def check_settings(settings: Settings) -> None:
    """Refuses settings that are wrong in every pipeline."""
    for op in settings.op_types:
        check_known("op", op, contraction_names(), " in op_types")
    if settings.weights.emit == "dequantized" and settings.activations.format != FLOAT:
        hint = "use a weight-only pipeline, or weights.emit=integer"
        raise UserError("weights.emit=dequantized leaves no integers to multiply", hint=hint)
    get_observer(settings.calibration.method)  # refuses a name that is none


def _check_recovery(pipeline: Pipeline) -> None:
    """Refuses names that are no recovery pass of the pipeline."""
    asked = pipeline.settings.recovery
    steps = [p for passes in pipeline.passes.values() for p in passes if isinstance(p, Recovery)]
    there = [p.name for p in steps]
    for name in asked if isinstance(asked, tuple) else ():
        if asked.count(name) > 1:  # type: ignore[union-attr]
            raise UserError(f"the recovery pass {name!r} is listed twice", hint="it runs once")
        if name in REMOVED:
            raise UserError(f"the recovery pass {name!r} is gone", hint=REMOVED[name])
        if name == "learn" and not pipeline.settings.minutes:
            raise UserError("learn takes no time with minutes=0", hint="--minutes N (minutes=N)")
        if name not in there:
            what = f"pipeline {pipeline.name} has no recovery pass {name!r}"
            raise UserError(what, hint=known(name, there))


def _check_placement(pipeline: Pipeline) -> None:
    """Refuses a placement that the pipeline cannot carry out."""
    activations, placement = pipeline.settings.activations, pipeline.settings.placement
    named = f"pipeline {pipeline.name}"
    if activations.format == FLOAT and placement != "hybrid":
        what = f"placement={placement} in {named}, whose activations stay float"
        raise UserError(what, hint="use int8-static or int8-dynamic")
    if placement == "early" and activations.mode == "dynamic":
        what = "placement=early needs ranges before the program runs, and activations.mode=dynamic"
        hint = "use int8-static, or placement=late"
        raise UserError(f"{what} finds them while it does", hint=hint)
    if placement != "early" and pipeline.settings.integer_only:
        what = f"placement={placement} leaves floats between products, and {named} is integer-only"
        raise UserError(what, hint="use int8-static")


def _warn_of_block_size(pipeline: Pipeline) -> None:
    """Tells the user of a block size where nothing is stored or computed in blocks."""
    for side in ("weights", "activations"):
        key, granularity = f"{side}.block_size", getattr(pipeline.settings, side).granularity
        ruled = any(k.startswith(side) for rule in pipeline.rules for k in rule.override)
        if key in pipeline.explicit and granularity != "per-block" and not ruled:
            given = f"{side}.granularity={granularity}; give {side}.granularity=per-block, too"
            warnings.warn(f"{key} has no effect with {given}", stacklevel=2)


def load_pipeline(
    source: str | PipelineFile,
    overrides: dict[str, Any] | None = None,
    rules: tuple[Rule, ...] = (),
) -> Pipeline:
    """A pipeline by name or path, with settings overridden and the user's rules in front.

    Args:
        source: the name of a pipeline of ours, the path of a TOML file, or what was read of one.
        overrides: settings by dotted key, `{"weights.format": "int4"}`.
        rules: the user's, which come before those of the file.

    Raises:
        UserError: there is no such pipeline, or a setting, rule or recovery pass is unknown or
            cannot be carried out with the others."""
    file = source if isinstance(source, PipelineFile) else read_pipeline(str(source))
    where = f"pipeline {file.name}"
    settings = apply_overrides(Settings(), flat_settings(file.settings), where=where)
    settings = apply_overrides(settings, overrides or {}, where="settings")
    check_settings(settings)
    for rule in (*rules, *file.rules):
        check_rule(rule)
    explicit = frozenset(overrides or {})
    loaded = Pipeline(file.name, file.description, settings, (*rules, *file.rules), explicit, file)
    _check_recovery(loaded)
    _check_placement(loaded)
    _warn_of_block_size(loaded)
    return loaded


def for_target(pipeline: Pipeline, target: Target) -> Pipeline:
    """The pipeline as a target can carry it out.

    A device without floats gets its codes early; where it has no tensors of the format
    `activations.residual`, they have that of other activations.

    Raises:
        UserError: the device lacks what was asked for by name."""
    settings, asked, device = pipeline.settings, pipeline.explicit, target.device
    limited = ["default", *op_kinds()]  # `default`: of ops that have no limits of their own
    named = {"ops": (op_kinds(), device.ops or ()), "limits": (limited, device.limits)}
    for key, (kinds, names) in named.items():
        for kind in names:
            check_known("op", kind, kinds, f" in device.{key} of target {target.name}")
    if device.integer_only and settings.activations.calibrated and settings.placement != "early":
        if "placement" in asked:
            what = f"target {target.name} has no floats for placement={settings.placement}"
            raise UserError(what, hint="leave placement=early")
        settings = settings.model_copy(update={"placement": "early"})
    wide = settings.activations.residual
    if wide is not None and wide not in device.tensors:
        if "activations.residual" in asked:
            help = f"activations.residual={' or '.join(device.tensors) or 'none'}"
            raise UserError(f"target {target.name} has no {wide} tensors", hint=help)
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
