"""The stages of a job: calibrate, plan, rewrite, and build the compiled model."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from jq.artifact.description import describe_build, with_sizes
from jq.artifact.jobs import HERE, Workers
from jq.artifact.keys import program_digest
from jq.artifact.modules import compile_cached
from jq.artifact.programs import SharedWeights, TargetProgram, kernels_of
from jq.base.errors import LOG, CompilerError, UserError
from jq.base.progress import Stages
from jq.driver.audit.op_table import op_table
from jq.driver.compiled import CompiledModel
from jq.driver.job import GIVE_DATA, NO_DATA, Job
from jq.ir import Program
from jq.ir.decisions import SMOOTHING, facts_of
from jq.ir.ops.dims import work_of
from jq.ir.quantized.edges import edge_name
from jq.iree.compiler import Compilation, compile_module
from jq.iree.handover import handover, parameter_key
from jq.passes.order import Level
from jq.passes.pipeline import rewrite as rewrite_levels
from jq.planning.calibration import run as calibration_run
from jq.planning.calibration.ranges import Ranges, site
from jq.planning.calibration.shards import NO_SHARDS, Shards
from jq.planning.decisions import QuantPlan
from jq.planning.review import mostly_float
from jq.target.target import Target

FAR = 16  # times what was calibrated with
MANY_OPERATIONS = 10_000_000  # of float products: from here on their layout matters


def calibrate_job(
    job: Job, stages: Stages, shards: Shards = NO_SHARDS, workers: Workers = HERE
) -> Ranges:
    """The ranges of a job, observed on its calibration data, or on a part of it."""
    if not job.data:
        other = ", or use int8-dynamic" if job.target.device.dynamic else ""
        raise UserError(NO_DATA, hint=GIVE_DATA + other)
    chosen = job.pipeline.settings.calibration
    first, data = shards.part(job.data)
    rows = [[np.atleast_1d(x) for x in call] for call in data]
    same = (np.all(x == y[:1]) for call in rows for x, y in zip(call, rows[0], strict=True))
    if sum(len(x) for call in rows for x in call) > len(rows[0]) and all(same):
        LOG.warning("the calibration data are one sample, repeated: ranges would be of it alone")
    with suppress(UserError):  # example inputs of another size
        _warn_of_examples(job, rows)
    with stages("calibrate") as report:

        def observe() -> dict[str, np.ndarray]:
            seen = calibration_run.calibrate(
                job.program,
                data,
                chosen.method,
                report,
                relevant=chosen.relevant,
                first=first,
                workers=workers,
            )
            outputs = {f"output {i}": y for i, y in enumerate(seen.outputs)}
            return {"text": np.frombuffer(seen.text().encode(), np.uint8), **outputs}

        found = job.prepared.found(job.program, f"calibrate({chosen!r}, {shards})", observe)
        ranges = Ranges.of_text(bytes(found["text"]).decode())
    outputs = tuple(found[f"output {i}"] for i in range(len(found) - 1))
    smoothing = {name: np.exp2(s) for name, s in facts_of(job.program, SMOOTHING).items()}
    digest = program_digest(job.source.program)
    return replace(ranges, smoothing=smoothing, model=digest, shards=shards, outputs=outputs)


def _warn_of_examples(job: Job, rows: Sequence[Sequence[np.ndarray]]) -> None:
    """Example inputs far beyond the calibration data: one of them is not what the model gets."""
    owner = job.source.model
    calls = job.source.calls([owner.example_inputs]) if owner else None
    for tensor, *every in zip(job.program.inputs, *(calls or [()]), *rows, strict=False):
        if np.asarray(every[0]).dtype.kind in "fV":
            reach, *seen = (np.abs(np.asarray(x, np.float32)).max(initial=0) for x in every)
            if 0 < FAR * max(seen, default=0) < reach:
                said = "the example inputs reach %.3g at %s, the calibration data %.3g: what is"
                LOG.warning(said + " beyond that is clipped", reach, tensor.name, max(seen))


def plan_job(job: Job, stages: Stages) -> QuantPlan:
    """The plan of a job, after calibration where it needs ranges and none were given."""
    if job.pipeline.open:
        what = f"pipeline {job.pipeline.name} chooses formats within `compile`, by what it measures"
        raise UserError(what, hint="give another one here, such as int8-static")
    ranges, given = job.ranges, job.ranges is not None and not job.observed
    with stages("plan"):
        needed = job.needs_ranges
    if needed:
        ranges = calibrate_job(job, stages)
    with stages("plan"):
        found = job.plan(ranges)
    for op in found.ops:  # that compute with other codes than those that the model brings
        if op.anew and job.pipeline.settings.strict_encodings:
            hint = "leave strict_encodings (--strict-encodings) off to compute with other codes"
            raise UserError(op.anew, op=op.name, hint=hint)
        if op.anew:
            LOG.warning("%s: %s", op.name, op.anew)
    if given and found.unranged and not found.has_static:
        what = f"the ranges are of another model: none is of an op here ({found.unranged[0]}, ...)"
        raise UserError(what, hint="make them with `jaxq calibrate` on this model")
    edges = [name for op in job.program.walk() if (name := edge_name(op))]
    missing = [name for name in edges if site(name, 0) in found.unranged]
    if given and missing:
        raise UserError(
            f"the ranges lack {len(missing)} of the {len(edges)} tensors that are stored as codes"
            f" here ({missing[0]}, ...)",
            hint="they are of another pipeline, target or version, or of data that did not reach"
            f" these: make them with `jaxq calibrate --pipeline {job.pipeline.name} --target"
            f" {job.target.name}`",
        )
    return found


def rewrite_job(job: Job, quant_plan: QuantPlan, until: Level = "target") -> Mapping[str, Program]:
    """A job's program at every level, or at those up to `until`."""
    levels = rewrite_levels(job.program, job.pipeline, job.context(quant_plan), until)
    return {str(level): found for level, found in levels.items()}


def build(
    job: Job,
    quant_plan: QuantPlan,
    stages: Stages,
    emit: Sequence[str] = (),
    *,
    cache: bool = True,
    key_of: Callable[[str, np.ndarray], str] = lambda name, array: parameter_key(name),
    others: Sequence[tuple[Job, QuantPlan]] = (),
) -> CompiledModel:
    """Rewrites a job by its plan for each of its targets, hands the programs to IREE and puts the
    artifact together; `key_of` gives the key of a weight that lies beside the modules, `others` are
    the same model at further sizes."""
    weights, programs, targets = SharedWeights(key_of), [], job.target.each()
    every, made = [(job, quant_plan), *others], []
    single = len(targets) * len(every) == 1
    limit = job.pipeline.settings.storage.inline_limit if single else 0
    run = compile_cached if cache else compile_module
    for variant, (sized, its_plan) in enumerate(every):
        for target in targets:
            with stages("rewrite") as report:
                cx = replace(sized, target=target).context(its_plan, report)
                levels = rewrite_levels(sized.program, job.pipeline, cx)
            place = f"{target.name}@{variant}" if variant else target.name
            with stages("compile"):
                handed = handover(
                    levels["target"], inline_limit=limit, key_of=weights.key_of(place)
                )
                weights.add(handed.parameters)
                found = _compile(levels["target"], handed.bytecode, target, run)
            programs.append(
                TargetProgram(
                    target.name, kernels_of(target), found.vmfb, found.program or "", variant
                )
            )
            made.append((cx, levels))
    cx, levels = made[0]
    floats = mostly_float(job.program, cx.plan, job.pipeline.settings)
    for warning in (*filter(None, [floats]), *cx.plan.doubts):
        LOG.warning("%s", warning)
        levels["target"].tell(warning)
    manifest = describe_build(
        program=levels["target"],
        source=job.source.program,
        pipeline=job.pipeline.name,
        target=job.target,
        ops=op_table(cx.plan, levels),
        unused_rules=cx.plan.unused_rules,
        settings=job.pipeline.settings.model_dump(),
        rules=[rule.model_dump() for rule in job.pipeline.rules],
        notes=levels["target"].notes,
        own_files=job.own_files,
    )
    if others:
        firsts = [found["target"] for _, found in made[:: len(targets)]]
        sizes = [sized.source.sizes for sized, _ in every]
        manifest = with_sizes(manifest, list(zip(sizes, firsts, strict=True)))
    return CompiledModel(
        manifest=manifest,
        programs=tuple(programs),
        parameters=weights.arrays or None,
        levels={str(level): found for level, found in levels.items()} | {"marked": levels.marked},
        plan=quant_plan,
        source=job.source,
        emit=tuple(emit),
        seconds=stages.seconds,
    )


def _compile(
    program: Program, bytecode: bytes, target: Target, run: Callable[..., Compilation]
) -> Compilation:
    """IREE's result, with the target's flags for float products where they pay."""
    work, float_only = work_of(program), not program.encodings
    if float_only and work.products >= max(work.convolutions, MANY_OPERATIONS):
        with suppress(CompilerError):  # not everything can be packed
            return run(bytecode, flags=(*target.flags, *target.product_flags))
    return run(bytecode, flags=target.flags)
