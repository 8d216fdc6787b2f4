"""`jaxq inspect`, `jaxq explain`: what an artifact holds, and what one would hold."""

from pathlib import Path
from typing import Any

from rich.console import Group

from jq.base.tables import groups, size
from jq.cli import options
from jq.cli.command import command
from jq.cli.language import is_language_model, own
from jq.cli.output import Output


@command("inspect", example="jaxq inspect out/ --json")
def inspect(
    out: Output, artifact: Path, verify: list[Path] | None = None, trust: str = "any"
) -> dict[str, Any]:
    """Shows what an artifact holds: bytes and format of every weight, types of every product.

    What stayed float is listed with the reason. All is read from the compiler's own program in the
    artifact. Exit code 1: it does not show what the manifest claims.

    Args:
        artifact (<DIR>): An artifact, or a .gguf or .onnx file."""
    from jq.frontends.gguf import is_gguf

    if is_gguf(artifact) and not artifact.is_dir():
        return inspect_gguf(out, artifact)
    if artifact.suffix == ".onnx":
        return inspect_onnx(out, artifact)
    from jq import api

    audit = api.load(artifact, verify=verify, trust=trust).audit()
    out.show(Group(*audit.tables()))
    out.line(audit.summary())
    if not audit.verified:
        out.code = 1
    document: dict[str, Any] = audit.to_dict()
    return document


def inspect_gguf(out: Output, path: Path) -> dict[str, Any]:
    """The tensors of a GGUF file, also those of types that cannot be loaded."""
    from jq.frontends.gguf import describe_gguf

    rows = [row._asdict() for row in describe_gguf(path)]
    out.table("tensors", ("name", "shape", "type", "bytes"), rows)
    out.line(f"{len(rows)} tensors, {size(sum(row['bytes'] for row in rows))}")
    return {"tensors": rows}


def inspect_onnx(out: Output, path: Path) -> dict[str, Any]:
    """Inputs, sizes, operators and what is quantized in an ONNX file."""
    from jq.frontends.onnx import describe_checked

    found = describe_checked(path)
    for key in ("inputs", "outputs"):
        out.table(key, ("name", "type", "shape"), found[key])
    out.table("operators", ("op", "version", "count", "supported"), found["operators"])
    columns = ("tensor", "kind", "type", "granularity", "zero_point", "op")
    if found["quantized"]:
        out.table("quantized", columns, found["quantized"])
    open_sizes = ", ".join(found["sizes"]) or "none"
    out.line(f"{found['parameters']} parameters, {size(found['bytes'])}; open sizes: {open_sizes}")
    return found


@command(
    "explain", example="jaxq explain my.py:model --pipeline int8-static", asked=options.asked()
)
def explain(out: Output, model: str, calibrate: bool = True, **asked: Any) -> dict[str, Any]:
    """Shows what would be quantized and how, or why not, without compiling.

    Static ranges are calibrated first, which takes most of its time and is kept for `compile`:
    --no-calibrate leaves that out, and so does --ranges FILE, which `jaxq calibrate` writes.
    One row for each op: formats, the kernel that computes it or why there is none, and the reason
    where it stays float. Then the places where integers become floats again, and why.

    Args:
        calibrate: Calibrate static ranges first; without, ranges are assumed."""
    from jq import api
    from jq.driver.audit.op_table import COLUMNS

    if is_language_model(model):
        from jq.passes.pipeline.file import as_overrides

        base, first = own(asked["pipeline"])
        asked["settings"] = base | as_overrides(asked["settings"])
        asked["rules"] = [*(asked["rules"] or ()), *first]
    with out.progress() as progress:
        document = api.explain(
            options.sized(model, asked), **asked, calibrate=calibrate, progress=progress
        )
    shown = tuple(c for c in COLUMNS if any(row[c] for row in document["ops"]))
    out.table("plan", shown, document["ops"])
    floats = [
        {"read by": op, "count": len(those), "first": those[0]["tensor"], "reason": reason}
        for (op, reason), those in groups(document["dequantized"], "op", "reason").items()
    ]
    if floats:
        out.table(
            "where integers become floats again", ("read by", "count", "first", "reason"), floats
        )
    for note in document.notes():
        out.note(note)
    return document
