"""Checks what a device cannot run of a model: by the plan, and by the proof that no float is left.

Nothing is decided here: the reasons are those with which planning and the passes decline."""

from collections.abc import Iterator

from jq.device.assumed import Planned, planned
from jq.device.results import Check
from jq.frontends.source import AnyModel
from jq.ir import Op, ir, kind_of, shape_of
from jq.ir.build import SCOPE, string_attr
from jq.ir.decisions import Function, declined, function_of
from jq.ir.markers import marker_kind
from jq.passes.integer.verify_integer import FORMS_HELP, INTEGER_HELP, causes, name_of
from jq.passes.pipeline.file import Rules, SettingsLike
from jq.planning.operands import contractions, op_name
from jq.target.target import Target

FLOAT_HELP = "--rule '{name}: float' says that it is meant"


def check(
    model: AnyModel,
    target: str | Target = "llvm-cpu",
    *,
    pipeline: str | None = None,
    settings: SettingsLike = None,
    rules: Rules = None,
) -> Check:
    """The ops of a model that a device cannot run as the pipeline asks.

    The arguments that are not listed are those of `jq.compile`.

    Args:
        model: see `jq.trace`; its weights and shapes are read, no data is.
        pipeline: default is the first that the device accepts.

    Returns:
        `{"target", "pipeline", "ops": N, "refused": [{"name", "op", "shape", "reason", "help"}]}`,
        which prints as a table. `refused` is empty if every op that the pipeline quantizes is
        computed on quantized values. On a device without floats, there is no float op then between
        the first quantize and the last dequantize, and no op beyond them that the device lacks.
        `ops` is the number of ops of the prepared program that compute something.

    Raises:
        UserError: the model, a name or a setting is wrong.

    Example:
        ```python
        found = jq.check(model, "npu-int8")
        print(found["pipeline"], [row["name"] for row in found["refused"]])
        ```"""
    found = planned(model, target, pipeline, settings, rules)
    general = INTEGER_HELP if _integer_only(found) else FLOAT_HELP
    refused = [
        {**row, "help": row["help"] or general.format(name=row["name"])} for row in _refused(found)
    ]
    ops = sum(
        kind_of(op) != "stablehlo.constant" and marker_kind(op) is None
        for op in found.job.program.walk()
        if len(op.operation.results)
    )
    names = {"target": found.job.target.name, "pipeline": found.job.pipeline.name}
    return Check({**names, "ops": ops, "refused": refused})


def _refused(found: Planned) -> Iterator[dict[str, str]]:
    ops = {op_name(op): op for op, _ in contractions(found.job.program)}
    declines = {p.name: p for p in found.plan.ops if p.decision != "integer" and p.reason}
    if error := found.refused:
        op = next((o for o in found.job.program.walk() if op_name(o) == error.op), None)
        yield {**_facts(op, error.op or ""), "reason": error.message, "help": error.hint or ""}
    elif _integer_only(found):
        yield from _floats(found, ops)
    else:
        for p in declines.values():
            if not p.wanted:
                yield {**_facts(ops[p.name], p.name), "reason": p.cause, "help": p.help}
        yield from _declined(found)


def _integer_only(found: Planned) -> bool:
    return found.job.target.device.integer_only or found.job.pipeline.settings.integer_only


def _declined(found: Planned) -> Iterator[dict[str, str]]:
    """Ops that the device would compute on codes, had it such ones, and computes in float."""
    seen = set[Function]()
    for op in found.integer.walk():
        part = function_of(op)
        if part is not None:
            if part not in seen:
                told = {"op": part.function, "reason": part.reason, "help": part.help}
                yield _facts(op, part.name) | told
            seen.add(part)
        elif (said := declined(op)) is not None:
            yield {**_facts(op, name_of(op)), "reason": said[0], "help": said[1]}


def _floats(found: Planned, ops: dict[str, Op]) -> Iterator[dict[str, str]]:
    """Float ops between codes, but for those that are float because of another one."""
    for cause in causes(found.integer, found.plan):
        facts = _facts(ops.get(cause.name, cause.op), cause.name)
        kind = {"op": cause.function} if cause.function else {}
        help = cause.help or (FORMS_HELP if "no integer form" in cause.reason else "")
        yield {**facts, **kind, "reason": cause.reason, "help": help}


def _facts(op: Op | None, name: str) -> dict[str, str]:
    """Name, kind and shapes of an op; its scope where it has no name of its own."""
    if op is None:
        return {"name": name, "op": "", "shape": ""}
    kind = kind_of(op).removeprefix("stablehlo.")
    operands = ", ".join(_shape(v) for v in op.operation.operands)
    shape = f"{operands} -> {_shape(op.operation.results[0])}"
    named = string_attr(op, SCOPE) or kind if name == kind_of(op) else name
    return {"name": named, "op": kind, "shape": shape}


def _shape(value: ir.Value) -> str:
    return "x".join(map(str, shape_of(value))) or "scalar"
