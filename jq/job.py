"""What the stages share: the traced model, and the job of compiling it for a target."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from jq import npz
from jq.artifact.programs import best_first
from jq.cache.results import Results
from jq.calibration.digest import program_digest
from jq.calibration.ranges import Ranges
from jq.data import data_names
from jq.errors import OF_USERS, JqError, UserError
from jq.ir import Program
from jq.model import Batch, Model
from jq.passes.base import PassContext, Report, unheard
from jq.pipeline import (
    Pipeline,
    PipelineFile,
    flat_settings,
    for_target,
    load_pipeline,
    make_plan,
    prepare,
    without_ranges,
)
from jq.planning import QuantPlan
from jq.progress import Bar, Progress
from jq.settings import Rule, parse_assignments, parse_rule
from jq.target import Target, is_ours, load_target
from jq.tracing.dynamic import each_size
from jq.tracing.entry import trace as trace_model
from jq.tracing.inputs import flat_batches
from jq.tracing.source import load_model
from jq.tree import structure_of

LOG = logging.getLogger("jq")
Settings = Mapping[str, Any] | Sequence[str] | str | None
Rules = Mapping[str, str] | Sequence[str | Rule] | str | None
# Batches (tuples of inputs), a function that returns them, or an `.npz` file of samples.
Data = Iterable[Batch] | Callable[[], Iterable[Batch]] | str | Path | None
Calls = Sequence[Sequence[np.ndarray]]  # flat inputs, call by call


class Later(Sequence[Sequence[np.ndarray]]):
    """Calls that are made when they are first looked at: not every pipeline does."""

    def __init__(self, make: Callable[[], Calls | None]) -> None:
        self._make = make

    @cached_property
    def _calls(self) -> Calls:
        return self._make() or ()

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, i: Any) -> Any:
        return self._calls[i]


@dataclass(frozen=True)
class Source:
    """What is compiled: the float program, and the model it came from when there is one.

    Attributes:
        sizes: of the symbolic dimensions, by name.
        others: the same at further sizes, for one artifact of all.

    Example:
        ```python
        source = jq.trace(model)
        print(source.program)  # StableHLO, as text
        ```
    """

    program: Program
    model: Model | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    others: tuple[Source, ...] = ()

    def joined(self, others: Iterable[Source]) -> Source:
        """One source of several sizes, which have to differ in their inputs' shapes."""
        every = (self, *others)
        shapes = [tuple(s.shape for s in each.program.inputs) for each in every]
        if len(set(shapes)) < len(shapes):
            raise UserError("two sizes give the inputs the same shapes")
        return replace(self, others=every[1:])

    @property
    def in_structure(self) -> Mapping[str, Any]:
        return structure_of(self.program.in_tree, len(self.program.inputs))

    def calls(self, data: Data) -> Calls | None:
        """Batches as flat arrays, shapes and types checked; None stays None."""
        if isinstance(data, str | Path):
            return npz.read_samples(Path(data), self.program.inputs)
        try:
            return flat_batches(self.program.inputs, self.in_structure, data)
        except JqError:
            raise
        except OF_USERS as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise UserError(f"the data that were given failed: {reason}") from error


AnyModel = Source | Model | Program | str | Path


@dataclass
class Stages:
    """Tells the user which stage runs, and keeps how long each took."""

    progress: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[Callable[[float | None], None]]:
        def report(share: float | None) -> None:
            if self.progress:
                self.progress(name, share)

        report(None)
        start = time.perf_counter()
        try:
            yield report
        finally:
            if isinstance(self.progress, Bar):
                self.progress.stop()  # what comes next may print
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


Sizes = Mapping[str, int | Sequence[int]]
ONE_RECOVERY = "weights are the same at all sizes: what recovers accuracy with data was left out"


def trace(model: AnyModel, *, sizes: Sizes | None = None) -> Source:
    """The float program of a model, however it is given.

    Args:
        model: a `jq.Model`; `"package.module:name"` or `"file.py:name"`; a StableHLO,
            `jax.export` or ONNX file; a `Program`.
        sizes: values of symbolic dimensions, by name; of several (`{"batch": [1, 8]}`) `jq.compile`
            makes one artifact, which chooses by the shapes of its inputs.

    Returns:
        A `Source`, which every function here takes in place of the model, so that it is traced
        once: `program` is the StableHLO module with its weights beside it (`program.module`,
        `program.weights`), `model` the `jq.Model` it came from, or None.

    Raises:
        UserError: the model cannot be found or traced, or a weight holds NaN or infinity.

    Example:
        ```python
        source = jq.trace(model)
        print(list(source.program.weights))  # names of the weights
        compiled = jq.compile(source, "int8-dynamic")  # is not traced again
        ```
    """
    if isinstance(model, Source):
        return model
    if isinstance(model, str | Path):
        model = load_model(str(model))
    first, *others = (_traced(model, each) for each in each_size_of(model, sizes))
    return first.joined(others)


def each_size_of(model: Any, sizes: Sizes | None) -> list[dict[str, Any]]:
    """`each_size`; of an ONNX file an input may have its whole shape there."""
    lists = any(isinstance(size, list | tuple) for size in (sizes or {}).values())
    if not lists or not (isinstance(model, Path) and model.suffix == ".onnx"):
        return each_size(sizes)
    from jq.onnx.checked import describe_checked

    return each_size(sizes, {row["name"] for row in describe_checked(model)["inputs"]})


def _traced(model: Model | Program | str | Path, sizes: Mapping[str, int]) -> Source:
    given: Mapping[str, int] | None = sizes or None
    if isinstance(model, Path) and model.suffix == ".onnx":
        from jq.onnx import load_checked

        model, given = load_checked(model, given), None
    owner = model if isinstance(model, Model) else None
    return Source(trace_model(model, sizes=given), owner, sizes)


@dataclass(frozen=True)
class Job:
    """A traced model with its pipeline and target: what every stage after tracing needs.

    Attributes:
        program: prepared: the float passes have run.
        data: for calibration.
        own_files: pipeline and target, where they are not ours.
        prepared: the context that the float passes ran in.
        ranges: given by the user, instead of calibration; or `observed` for this very job.
    """

    source: Source
    program: Program
    pipeline: Pipeline
    target: Target
    data: Calls | None
    own_files: Mapping[str, Mapping[str, Any]]
    prepared: PassContext
    ranges: Ranges | None = None
    observed: bool = False

    @property
    def needs_ranges(self) -> bool:
        """Whether calibration is needed; a model may bring all its ranges itself."""
        return bool(make_plan(self.program, self.pipeline, self.target).unranged)

    def context(self, plan: QuantPlan, report: Report = unheard) -> PassContext:
        """What the passes after planning may read."""
        before = self.prepared
        return PassContext(
            plan,
            self.pipeline.settings,
            self.target,
            self.data,
            gains=before.gains,
            moments=before.moments,
            results=before.results,
            recover=before.recover,
            report=report,
        )


def as_rules(rules: Rules) -> list[Rule]:
    """Rules in their order: of texts `"head/*: float"`, or of `{"head/*": "float"}`."""
    if isinstance(rules, Mapping):
        rules = [f"{pattern}: {settings}" for pattern, settings in rules.items()]
    given = [rules] if isinstance(rules, str) else rules or ()
    return [rule if isinstance(rule, Rule) else parse_rule(rule) for rule in given]


def as_overrides(settings: Settings) -> dict[str, Any]:
    """Settings by dotted key: `{"weights.format": "int4"}`."""
    if isinstance(settings, Mapping):
        return flat_settings(dict(settings))
    return parse_assignments([settings] if isinstance(settings, str) else list(settings or ()))


def strict(settings: Settings, chosen: bool) -> Settings:
    """The settings with those that refuse what would be encoded anew, where that is chosen."""
    return as_overrides(settings) | {"strict_encodings": True} if chosen else settings


def prepare_job(
    model: AnyModel,
    pipeline: str | PipelineFile,
    target: str | Target,
    settings: Settings = None,
    rules: Rules = None,
    calibration: Data = None,
    ranges: Ranges | str | Path | None = None,
    *,
    stages: Stages | None = None,
    recover: bool = True,
    cache: bool = False,
    iree_flags: Sequence[str] = (),
    allow_dynamic: bool = False,
    several: bool = False,
) -> Job:
    """Checks every name and setting before any slow work, then traces and cleans up.

    `recover=False` leaves out what takes time and changes values alone (see `PassContext`);
    `cache` takes what recovery and calibration find from earlier runs, and keeps it;
    `iree_flags` are added to the target's; `allow_dynamic` finds ranges at run time where
    calibrated ones are asked for and there is no calibration data, which is an error without it;
    `several` allows a source of several sizes: the job is that of the first (`at_size`).
    """
    stages = stages or Stages()
    first, own_target = tuple(as_rules(rules)), best_first(load_target(target))
    where = own_target.with_flags(iree_flags)
    chosen = for_target(load_pipeline(pipeline, as_overrides(settings), first), where)
    if chosen.open and not where.device.static:
        chosen = without_ranges(chosen, where) or chosen
    known = Ranges.load(Path(ranges)) if isinstance(ranges, str | Path) else ranges
    with stages("trace"):
        source = trace(model)
        if source.others and not several:
            raise UserError(
                "it is traced at several sizes", hint="give one: only compile takes more"
            )
        if known is not None:
            check_ranges(known, source.program, ranges)
        own = source.model.calibration if source.model else None
        given = calibration is not None
        data = source.calls(calibration) if given else Later(partial(source.calls, own))
    smoothing = known.smoothing if known else None
    # What an open pipeline chooses depends on recovery, also where the plan alone is asked for.
    told, recover = recover, (recover or chosen.open) and not source.others
    with stages("prepare") as report:
        results = Results(data) if cache else None
        cx = _context(chosen, where, data, smoothing, recover, report, results)
        program = prepare(source.program, chosen, where, cx=cx)
        fixed = known is None and not chosen.open
        other = without_ranges(chosen, where) if fixed else None
        if other and not data and make_plan(program, chosen, where).unranged:
            if not allow_dynamic:
                raise UserError(
                    "static activations need calibration data and there is none",
                    hint="give --calibration FILE.npz (calibration=...; `jaxq calibrate` has"
                    " --data), use int8-dynamic, or let ranges be found at run time with"
                    " --allow-dynamic (allow_dynamic=True)",
                )
            text = "there is no calibration data: ranges of activations are found at run time"
            LOG.warning("%s: %s", chosen.name, text)
            chosen, start = other, source.program.clone()
            start.notes = program.notes
            start.tell(text)
            cx = _context(chosen, where, data, smoothing, recover, report, results)
            program = prepare(start, chosen, where, cx=cx)
    if source.others and told and chosen.settings.recovery and data:
        program.tell(ONE_RECOVERY)
    own_files: dict[str, Mapping[str, Any]] = {}
    if pipeline not in data_names("pipelines"):
        own_files["pipeline"] = chosen.file.model_dump()
    if not (isinstance(target, str) and is_ours(target)):
        own_files["target"] = own_target.model_dump()
    return Job(source, program, chosen, where, data, own_files, cx, known)


def at_size(job: Job, other: Source, ranges: Ranges | None) -> Job:
    """The job at another size, with the ranges of the first: ops have the same names."""
    known = ranges.smoothing if ranges else None
    cx = _context(job.pipeline, job.target, (), known, False, unheard, None)
    program = prepare(other.program, job.pipeline, job.target, cx=cx)
    return replace(job, source=other, program=program, data=(), prepared=cx, ranges=ranges)


def check_ranges(ranges: Ranges, program: Program, given: Ranges | str | Path | None) -> None:
    """Refuses ranges that make no sense, are of another model or of a part of the data, or come
    from a file that does not say of which."""
    ranges.check()
    if missing := ranges.shards.missing:
        raise UserError(
            f"the ranges lack shard {missing[0]}/{ranges.shards.count} of the calibration data",
            hint="`jaxq calibrate --merge` puts all shards together",
        )
    file = f"{given}: " if isinstance(given, str | Path) else ""
    if ranges.model != program_digest(program) and (ranges.model or file):
        raise UserError(
            f"{file}the ranges are of another model, or of other weights, shapes or versions",
            hint="make them with `jaxq calibrate` on this model",
        )


def _context(
    pipeline: Pipeline,
    target: Target,
    data: Calls | None,
    smoothing: Mapping[str, np.ndarray] | None,
    recover: bool,
    report: Report,
    results: Results | None,
) -> PassContext:
    """What the float passes may read."""
    return PassContext(
        QuantPlan((), {}),
        pipeline.settings,
        target,
        data,
        known_smoothing=smoothing,
        rules=pipeline.rules,
        explicit=pipeline.explicit,
        recover=recover,
        report=report,
        results=results,
    )
