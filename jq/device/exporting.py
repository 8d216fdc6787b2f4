"""`jaxq export`: the integer program as a file that NPU compilers and other runtimes read."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from jq.artifact.load import MANIFEST
from jq.artifact.save import MARKED
from jq.base.errors import UserError, check_known
from jq.base.guard.worker import WORKER
from jq.base.progress import Progress, Stages
from jq.base.system.files import as_path, check_file, read_input, written_whole
from jq.device.ends import cut, output_names, renamed
from jq.device.forms.canonical import canonical
from jq.device.forms.table import Content, Ends, Form, form_of
from jq.device.forms.verifying import verified
from jq.device.golden import integer_level
from jq.device.network import Tensor, network
from jq.device.results import Export
from jq.driver.compiled import CompiledModel
from jq.driver.job import prepare_job
from jq.driver.loading import folder_of, load
from jq.driver.request import Request
from jq.driver.stages import plan_job
from jq.frontends.source import AnyModel, Calls, Data
from jq.frontends.tracing.modules import import_module, parse_stablehlo
from jq.ir import Program, shape_of
from jq.passes.pipeline import rewrite
from jq.passes.pipeline.file import Rules, SettingsLike
from jq.planning.calibration.ranges import Ranges
from jq.target.device_table import Device
from jq.target.target import Target

PIPELINE = "int8-static-integer-only"


@dataclass(frozen=True)
class _Made:
    """An integer program, plain and with its markers, and what it was made for."""

    integer: Program
    marked: Program
    device: Device
    data: Calls | None = None


def export(
    model: AnyModel | CompiledModel,
    path: str | Path,
    form: str | None = None,
    ends: Ends = "int8",
    *,
    verify: bool = False,
    pipeline: str | None = None,
    target: str | Target | None = None,
    calibration: Data = None,
    ranges: Ranges | str | Path | None = None,
    settings: SettingsLike = None,
    rules: Rules = None,
    allow_dynamic: bool = False,
    strict_encodings: bool = False,
    progress: Progress | None = None,
) -> Export:
    """Writes a model's integer program in a form that NPU compilers and other runtimes read.

    The arguments that are not listed are those of `jq.compile`.

    Args:
        model: see `jq.trace`; or what `jq.compile` gave, or the folder of an artifact that was
            compiled with `emit="integer"`.
        path: the file; its suffix says which form, unless `form` does.
        form: `tosa` and others; see `jaxq export --help`.
        ends: `int8` leaves out the quantization of inputs and the dequantization of outputs, which
            are codes then; `float` keeps it, where the form has floats.
        verify: run the file in the form's own reference, on recorded and random inputs and on the
            ends of the types, and count the elements that have the bits of our integer program.
        pipeline: default `int8-static-integer-only`.
        target: default is one that rounds as the form's own reference does.

    Returns:
        A dictionary that prints as a table: `path`, `form`, `operators` (how many of each kind),
        `inputs` and `results` (type, shape, scale and zero point), and with `verify` the number of
        elements that were compared (`outputs`), of those with the same bits (`same`), and both by
        the name of each reference (`readers`: the same, all): of Q/DQ files, ONNX Runtime also
        computes the floats as they are written, whose sums are rounded. `near_ties` names the
        layers of such files whose codes may differ by one next to a tie, and why.

    Raises:
        UserError: the form cannot hold an op, which is named; nothing has been written.

    Example:
        ```python
        exported = jq.export(model, "model.tosa", pipeline="int8-static-integer-only")
        print(exported["inputs"][0]["scale"], exported["operators"])
        ```"""
    path = as_path(path)
    chosen = form_of(path, form)
    check_known("ends", ends, get_args(Ends))
    check_file(path)
    if isinstance(model, str | Path) and (Path(model) / MANIFEST).is_file():
        model = load(model)
    if isinstance(model, CompiledModel):
        given = (pipeline, target, calibration, ranges, settings, rules)
        if any(x is not None for x in given):
            raise UserError("an artifact has its options already", hint="give the model")
        made = _compiled(model)
    else:
        stages = Stages.shown(progress)
        request = Request(
            *(pipeline or PIPELINE, target or chosen.target, settings, rules, calibration),
            *(ranges, allow_dynamic, strict_encodings, stages),
        )
        job = prepare_job(model, request)
        plan = plan_job(job, stages)
        with stages("rewrite") as report:
            levels = rewrite(job.program, job.pipeline, job.context(plan, report), "integer")
        made = _Made(levels["integer"], levels.marked, job.target.device, job.data)
    return _write(made, path, chosen, ends, verify)


def _compiled(model: CompiledModel) -> _Made:
    if model.manifest.sizes:
        hint = "give the model, and one size: --size NAME=N"
        raise UserError("an artifact of several sizes is not exported", hint=hint)
    target, marked = model.manifest.own_target().each()[0], model.levels.get("marked")
    if marked is not None:
        return _Made(model.levels["integer"], marked, target.device)
    folder = folder_of(model)
    integer = replace(integer_level(folder), inputs=model.inputs, outputs=model.outputs)
    return _Made(integer, _marked(folder, integer), target.device)


def _marked(folder: Path, integer: Program) -> Program:
    """The integer program of an artifact, with its markers and without names of weights."""
    path = folder / MARKED
    if not path.is_file():
        hint = "compile it with --emit integer, or export the model"
        raise UserError(f"{folder} holds no program that can be exported", hint=hint)
    data = read_input(path)
    WORKER.ask("jq.frontends.tracing.modules:try_module", data, str(path))
    module = import_module(parse_stablehlo(data, str(path)), str(path), None).module
    program = Program(module, {}, integer.inputs, integer.outputs)
    returned = program.body.operations[len(program.body.operations) - 1].operation.operands
    for specs, values in ((program.inputs, program.body.arguments), (program.outputs, returned)):
        if [s.shape for s in specs] != [shape_of(v) for v in values]:
            raise UserError("this is not the program of the artifact", location=str(path))
    return program


def _write(made: _Made, path: Path, form: Form, ends: Ends, verify: bool) -> Export:
    if empty := [t.name for t in (*made.integer.inputs, *made.integer.outputs) if 0 in t.shape]:
        raise UserError(f"{empty[0]} has no elements", hint="export the model with sizes above 0")
    whole, device = network(made.marked), made.device
    inner = cut(whole, device.table_entries) if ends == "int8" else whole
    inner = renamed(inner, output_names(inner, [spec.name for spec in made.integer.outputs]))
    try:
        steps = canonical(inner)
        ended = steps, inner.inputs, inner.outputs
        data = form.writer.write(Content(*ended, device.rescaling, ends, device.shared_sums))
    except UserError as error:
        error.hint = error.hint or "cut the model there, or export to another form"
        raise
    found: dict[str, Any] = {"path": str(path), "form": form.name}
    found |= dict.fromkeys(("outputs", "same", "readers"))
    found["near_ties"] = getattr(form.writer, "near_ties", lambda _: {})(data)
    if verify:
        found["readers"] = verified(made.integer, whole, inner, made.marked, form, data, made.data)
        found["same"], found["outputs"] = next(iter(found["readers"].values()))
    with written_whole(path) as temporary:
        temporary.write_bytes(data)
    found["operators"] = dict(Counter(step.kind for step in steps).most_common())
    found["inputs"] = [_row(t) for t in inner.inputs]
    found["results"] = [_row(t) for t in inner.outputs]
    return Export(found)


def _row(tensor: Tensor) -> dict[str, Any]:
    parameters = tensor.scale, tensor.zero_point
    scale, zero = (None if v is None else v.squeeze().tolist() for v in parameters)
    facts = {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
    return {**facts, "scale": scale, "zero_point": zero}
