"""`jaxq compile`: the whole way from a model to an artifact."""

import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group

from jq.base.errors import UserError
from jq.base.tables import groups, size
from jq.cli import options
from jq.cli.command import command
from jq.cli.language import compile_language_model, is_language_model
from jq.cli.output import Output


@command(
    "compile",
    example="jaxq compile my.py:model --pipeline int8-dynamic -o out/",
    writes=True,
    asked=options.asked(),
    language=("pipeline sign force", "context kv_cache text"),
)
def compile_model(
    out: Output,
    model: str,
    output: Path,
    iree_flags: list[str] | None = None,
    emit: list[str] | None = None,
    stablehlo_version: str | None = None,
    cache: bool = True,
    minutes: float = 0.0,
    measure: bool = True,
    save_pipeline: Path | None = None,
    sign: Path | None = None,
    force: bool = False,
    context: int | None = None,
    kv_cache: str | None = None,
    text: list[Path] | None = None,
    **asked: Any,
) -> dict[str, Any]:
    """Compiles a model into a quantized program: an artifact, which is a folder.

    Then it says what was quantized and what was not, and how close the outputs of a few samples are
    to the float model's. A language model becomes one folder of programs, weights and tokenizer.

    Args:
        output (-o DIR): The artifact.
        stablehlo_version (X.Y.Z): Of integer.portable.mlirbc, for a tool that reads no later
            StableHLO.
        cache: Take IREE's result from an earlier, equal compile.
        minutes (N 0..): Try rotations of activations, and learn codes and scales of weights of less
            than 8 bits for so long; goes on where an earlier run was.
        measure: Run the result beside the float model, for a few seconds (not with -q).
        save_pipeline (FILE.toml): Also write the pipeline as a file: settings, and rules as `auto`
            chose them.
        context (N): Of a language model: tokens at most.
        kv_cache (TYPE): Of a language model: float32, bfloat16 or int8.
        text (FILE): Of a language model: fit codes of 4 bits to it (GPTQ)."""
    from jq.artifact.signature import check_key

    if sign is not None:
        check_key(sign)
    if is_language_model(model):
        return compile_language_model(
            *(out, Path(model), output, asked["pipeline"], context, kv_cache, text or [], sign),
            force=force,
        )
    from jq import api
    from jq.artifact.save import check_output, check_version
    from jq.base.system.files import check_new
    from jq.ir.oracle.loaded import warm
    from jq.mixed_precision.problem import check_pipeline_name, pipeline_of
    from jq.reporting.measuring.glance import Glance, at_a_glance, verdict
    from jq.reporting.measuring.glance import document as measured
    from jq.reporting.report.suggest import warning

    check_output(output, force=force)
    version = check_version(stablehlo_version, emit or ())
    if save_pipeline is not None:
        check_new(save_pipeline, force=force)
        if save_pipeline.resolve().is_relative_to(output.resolve()):  # it could not be replaced
            hint = "write the pipeline file beside it"
            raise UserError(f"{save_pipeline} is in the artifact", hint=hint)
        check_pipeline_name(save_pipeline)
    measuring = measure and not out.quiet
    if measuring:
        warm("jq.reporting.measuring.glance")  # XLA's process imports what it needs meanwhile
    with out.progress() as progress:
        compiled = api.compile(
            options.sized(model, asked),
            **asked,
            emit=emit,
            cache=cache,
            iree_flags=iree_flags or (),
            measure=measure and out.quiet,  # else what is measured below says it
            minutes=minutes,
            progress=progress,
        )
        progress("save", None)
        check_output(output, force=force)  # another run may have written it meanwhile
        compiled.save(output, force=force, sign=sign, stablehlo_version=stablehlo_version)
        if save_pipeline is not None:
            pipeline_of(compiled.manifest).save(save_pipeline)
        found = at_a_glance(compiled, progress) if measuring else Glance()
    audit = compiled.audit()
    document = audit.to_dict()
    if out.verbose:
        out.show(Group(*audit.tables()))
    elif not out.quiet:
        summarize(out, document)
    if not out.quiet:
        times = [{"stage": name, "seconds": round(s, 2)} for name, s in compiled.seconds.items()]
        out.table("time", ("stage", "seconds"), times)
    out.line(f"wrote {output}: {audit.summary()}")
    if "integer" in compiled.emit:
        out.line(f"integer.portable.mlirbc is for StableHLO {version} and later")
    for note in compiled.manifest.notes:
        if note.startswith(f"{compiled.manifest.pipeline}: "):  # what a pipeline such as auto chose
            out.line(note)
    if not out.quiet:
        names = f"{shlex.quote(model)} {shlex.quote(str(output))}"
        out.line(verdict(found, audit.verdict()))
        if found.found is not None and (far := warning(found.found, compiled)):
            out.line(f"warning: {far}")
        out.line(f"Next, where its error comes from:\n  jaxq report {names} -o report.html")
    return {
        "path": str(output),
        "counts": Counter(op["decision"] for op in compiled.manifest.ops),
        "seconds": compiled.seconds,
        "unused_rules": compiled.manifest.unused_rules,
        "audit": document,
        "measured": measured(found),
    }


def summarize(out: Output, audit: Mapping[str, Any]) -> None:
    """Prints what was quantized and what was not, one row for all that are alike."""
    weights = groups(audit["weights"], "format", "granularity")
    rows = [
        {
            "format": kind[0],
            "granularity": kind[1],
            "count": len(those),
            "stored": size(sum(w["stored_bytes"] for w in those)),
            "float": size(sum(w["float_bytes"] for w in those)),
        }
        for kind, those in weights.items()
    ]
    out.table("weights", ("format", "granularity", "count", "stored", "float"), rows)
    products = groups(audit["contractions"], "lhs", "rhs", "acc", "op")
    rows = [
        {"op": op, "types": f"{lhs} x {rhs} -> {acc}", "count": len(those)}
        for (lhs, rhs, acc, op), those in products.items()
    ]
    out.table("contractions", ("op", "types", "count"), rows)
    rows = [
        {"op": op, "count": len(those), "first": those[0]["name"], "reason": reason}
        for (op, reason), those in groups(audit["float_ops"], "op", "reason").items()
    ]
    if rows:
        out.table("stays float", ("op", "count", "first", "reason"), rows)
