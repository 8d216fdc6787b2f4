"""A pipeline: settings and rules, read from `pipelines/<name>.toml`.

Which passes run follows from the settings: `jq.passes.order` has all of them in their order.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jq.calibration.observer import get_observer
from jq.calibration.ranges import Ranges
from jq.errors import UserError, known
from jq.ir import Program
from jq.ops.lookup import contraction_names
from jq.passes.base import Pass, PassContext, Recovery, run_all
from jq.passes.dequantized import dequantized
from jq.passes.levels import check_level
from jq.passes.order import LEVELS, REMOVED, Level, passes_for
from jq.passes.target.lower_markers import LowerMarkers
from jq.planning import QuantPlan, plan
from jq.planning.limits import limited_kinds, op_kinds
from jq.quantized.markers import to_quant_types
from jq.settings import FLOAT, Rule, Settings, Strict, apply_overrides, check_rule, validate
from jq.target import Target, load_toml


class PipelineFile(Strict):
    """What a pipeline file holds. Settings are those of `jq.settings.Settings`.

    `base` is a pipeline that this one starts from: the file's own rules come before the rules of
    its base, and its settings replace those of its base. A path is relative to the file.

    `candidates`: what an op may be, where the file leaves that to `compile` (`jq.choice.auto`);
    see `jq.choice.candidates` for how they are written.
    """

    name: str = ""
    base: str = ""
    description: str = ""
    settings: dict[str, Any] = {}
    rules: tuple[Rule, ...] = ()
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """A pipeline ready to run.

    `explicit` are the settings that the user gave by name; `file` is what it was made from.
    """

    name: str
    description: str
    settings: Settings
    rules: tuple[Rule, ...]
    explicit: frozenset[str] = frozenset()
    file: PipelineFile = field(default_factory=PipelineFile)

    @property
    def open(self) -> bool:
        """Whether it leaves the formats of ops to be chosen."""
        return bool(self.file.candidates)

    @cached_property
    def passes(self) -> dict[Level, tuple[Pass, ...]]:
        """The passes that run under the pipeline's settings."""
        return passes_for(self.settings)


def read_pipeline(name: str, readers: tuple[str, ...] = ()) -> PipelineFile:
    """A pipeline file by name or path, with what it takes from its base."""
    stem, data = load_toml("pipelines", name)
    where = f"pipeline {stem}"
    if "passes" in data:
        raise UserError(
            f"{where} has `passes`: which passes run, and their order, follows from the settings",
            hint="leave them out and write settings: `recovery = [...]` for what keeps accuracy,"
            " `placement`, `integer_only`; `jaxq list passes` shows the order and the conditions",
        )
    if outside := sorted(data.keys() & Settings.model_fields.keys()):
        raise UserError(
            f"{where} has the setting {outside[0]!r} outside of [settings]",
            hint='write it below a line [settings]: `weights.format = "int4"`',
        )
    file = validate(PipelineFile, {"name": stem, **data}, where=where)
    if not file.base:
        return file.model_copy(update={"settings": flat_settings(file.settings)})
    path = Path(file.base)
    beside = path.suffix == ".toml" and not path.is_absolute()
    found = str(Path(name).parent / path) if beside else file.base
    if found in (*readers, name):
        raise UserError(f"{where} is a base of itself")
    base = read_pipeline(found, (*readers, name))
    return PipelineFile(
        name=file.name,
        description=file.description or base.description,
        settings=base.settings | flat_settings(file.settings),
        rules=(*file.rules, *base.rules),
        candidates=file.candidates or base.candidates,
    )


def load_pipeline(
    source: str | PipelineFile,
    overrides: dict[str, Any] | None = None,
    rules: tuple[Rule, ...] = (),
) -> Pipeline:
    """A pipeline by name or path, with settings overridden and the user's rules in front."""
    file = source if isinstance(source, PipelineFile) else read_pipeline(source)
    where = f"pipeline {file.name}"
    settings = apply_overrides(Settings(), flat_settings(file.settings), where=where)
    settings = apply_overrides(settings, overrides or {}, where="settings")
    for op in settings.op_types:
        _check_op(op, "op_types")
    if settings.weights.emit == "dequantized" and settings.activations.format != FLOAT:
        raise UserError(
            "weights.emit=dequantized leaves no integers to multiply",
            hint="use a weight-only pipeline, or weights.emit=integer",
        )
    get_observer(settings.calibration.method)  # refuses a name that is none
    for rule in (*rules, *file.rules):
        check_rule(rule)
    explicit = frozenset(overrides or {})
    loaded = Pipeline(file.name, file.description, settings, (*rules, *file.rules), explicit, file)
    _check_recovery(loaded)
    _check_placement(loaded)
    _warn_of_block_size(loaded)
    return loaded


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


def _check_op(op: str, where: str) -> None:
    if op not in contraction_names():
        raise UserError(f"unknown op {op!r} in {where}", hint=known(op, contraction_names()))


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


def flat_settings(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys, so that every setting has one spelling."""
    out: dict[str, Any] = {}
    for key, value in node.items():
        out |= (
            flat_settings(value, f"{prefix}{key}.")
            if isinstance(value, dict)
            else {prefix + key: value}
        )
    return out


Data = Sequence[Sequence[np.ndarray]] | None  # calibration: flat inputs, batch by batch


def prepare(
    program: Program,
    pipeline: Pipeline,
    target: Target,
    data: Data = None,
    cx: PassContext | None = None,
) -> Program:
    """The float program as planning and calibration see it: a copy, with float passes run."""
    prepared = program.clone()
    cx = cx or PassContext(QuantPlan((), {}), pipeline.settings, target, data)
    run_all(pipeline.passes["float"], prepared, cx)
    return prepared


def make_plan(
    program: Program, pipeline: Pipeline, target: Target, ranges: Ranges | None = None
) -> QuantPlan:
    """The plan for a prepared program."""
    return plan(program, pipeline.settings, target, pipeline.rules, ranges, pipeline.explicit)


class Levels(dict[Level, Program]):
    """A program at every level, each of them a program of its own.

    Attributes:
        dequantized: where integers become floats again, and why; see `jq.passes.dequantized`.
    """

    dequantized: list[dict[str, str]]

    def __init__(self, levels: Mapping[Level, Program] | None = None) -> None:
        super().__init__(levels or {})
        self.dequantized = []


def rewrite(
    program: Program, pipeline: Pipeline, cx: PassContext, until: Level = "target"
) -> Levels:
    """A prepared float program at every level, or at those up to `until` (`qdq`, `target`)."""
    levels = Levels({"float": program})
    for level in LEVELS[1 : LEVELS.index(until) + 1]:
        program = program.clone()
        run_all(pipeline.passes[level], program, cx)
        levels[level] = program
    if "integer" in levels:
        _open_markers(levels, cx)
    for level, reached in levels.items():
        check_level(reached, level)
    if cx.settings.weights.emit == "quant-type":
        levels["qdq"] = levels["qdq"].clone()
        to_quant_types(levels["qdq"], strict=True)
        levels["qdq"].verify()
    return levels


def _open_markers(levels: Levels, cx: PassContext) -> None:
    """The target starts from markers, where kernels see whole chains; the integer level that is
    emitted is plain."""
    levels.dequantized = dequantized(levels["integer"], cx)
    levels["integer"] = levels["integer"].clone()
    run_all([LowerMarkers()], levels["integer"], cx)
