"""Loads a pipeline by name or path, and checks it before anything slow begins."""

import warnings
from typing import Any

from jq.base.errors import UserError, known
from jq.ir.ops.lookup import contraction_names
from jq.passes.base import Recovery
from jq.passes.order import REMOVED
from jq.passes.pipeline.file import PipelineFile, flat_settings, read_pipeline
from jq.passes.pipeline.loaded import Pipeline
from jq.planning.calibration.observer import get_observer
from jq.target.rules import Rule, apply_overrides, check_rule
from jq.target.settings import FLOAT, Settings


def check_settings(settings: Settings) -> None:
    """Refuses settings that are wrong in every pipeline."""
    for op in settings.op_types:
        if op not in contraction_names():
            raise UserError(f"unknown op {op!r} in op_types", hint=known(op, contraction_names()))
    if settings.weights.emit == "dequantized" and settings.activations.format != FLOAT:
        raise UserError(
            "weights.emit=dequantized leaves no integers to multiply",
            hint="use a weight-only pipeline, or weights.emit=integer",
        )
    get_observer(settings.calibration.method)  # refuses a name that is none


def check_pipeline(pipeline: Pipeline) -> None:
    """Refuses recovery passes and a placement that the pipeline cannot carry out, and warns of a
    block size without an effect."""
    _check_recovery(pipeline)
    _check_placement(pipeline)
    _warn_of_block_size(pipeline)


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
        if name not in there:
            raise UserError(
                f"pipeline {pipeline.name} has no recovery pass {name!r}",
                hint=known(name, there),
            )


def _check_placement(pipeline: Pipeline) -> None:
    """Refuses a placement that the pipeline cannot carry out."""
    activations, placement = pipeline.settings.activations, pipeline.settings.placement
    if activations.format == FLOAT and placement != "hybrid":
        raise UserError(
            f"placement={placement} in pipeline {pipeline.name}, whose activations stay float",
            hint="use int8-static or int8-dynamic",
        )
    if placement == "early" and activations.mode == "dynamic":
        raise UserError(
            "placement=early needs ranges before the program runs, and activations.mode=dynamic"
            " finds them while it does",
            hint="use int8-static, or placement=late",
        )
    if placement != "early" and pipeline.settings.integer_only:
        raise UserError(
            f"placement={placement} leaves floats between products, and pipeline {pipeline.name}"
            " is integer-only",
            hint="use int8-static",
        )


def _warn_of_block_size(pipeline: Pipeline) -> None:
    """Tells the user of a block size where nothing is stored or computed in blocks."""
    for side in ("weights", "activations"):
        key, granularity = f"{side}.block_size", getattr(pipeline.settings, side).granularity
        ruled = any(k.startswith(side) for rule in pipeline.rules for k in rule.override)
        if key in pipeline.explicit and granularity != "per-block" and not ruled:
            warnings.warn(
                f"{key} has no effect with {side}.granularity={granularity};"
                f" give {side}.granularity=per-block, too",
                stacklevel=2,
            )


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
            cannot be carried out with the others.
    """
    file = source if isinstance(source, PipelineFile) else read_pipeline(source)
    where = f"pipeline {file.name}"
    settings = apply_overrides(Settings(), flat_settings(file.settings), where=where)
    settings = apply_overrides(settings, overrides or {}, where="settings")
    check_settings(settings)
    for rule in (*rules, *file.rules):
        check_rule(rule)
    explicit = frozenset(overrides or {})
    loaded = Pipeline(file.name, file.description, settings, (*rules, *file.rules), explicit, file)
    check_pipeline(loaded)
    return loaded
