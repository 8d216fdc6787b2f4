"""`jaxq quickstart`: a small model the whole way, to see that everything works here."""

from pathlib import Path
from typing import Any

from jq.base.tables import size
from jq.cli.command import command
from jq.cli.output import Output

MODEL = "jq.models:mlp"
PIPELINES = ("float", "int8-static")
NEXT = """It works here. Next, with a model of your own:
  jaxq compile my.py:model -o out/     my.py defines model = jq.Model(fn, params, inputs)
  jaxq compare my.py:model out/ --layers
  jaxq report my.py:model out/ -o report.html"""


@command("quickstart", example="jaxq quickstart")
def quickstart(out: Output, output: Path | None = None, force: bool = False) -> dict[str, Any]:
    """Compiles and runs a small built-in model, to see that everything works here.

    The float program and an int8 one are ranked by how close they stay to the float model. It needs
    no data and takes seconds.

    Args:
        output (-o DIR): Where the artifacts are kept."""
    from jq import api
    from jq.artifact.save import check_output
    from jq.base.system.temporary import temporary_folder
    from jq.frontends.source import trace
    from jq.reporting.measuring.ranking import rank

    with temporary_folder() as temporary:
        folder = output or temporary
        paths = [folder / pipeline for pipeline in PIPELINES]
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            check_output(path, force=force)
        source = trace(MODEL)
        with out.progress() as progress:
            for pipeline, path in zip(PIPELINES, paths, strict=True):
                api.compile(source, pipeline, progress=progress).save(path, overwrite=force)
            found = rank(source, paths, latency=True, seconds=0.5, progress=progress)
    rows = [{**row, "artifact": Path(row["artifact"]).name} for row in found.rows]
    columns = tuple(c for c in found.columns() if c != "pipeline")
    out.table(f"{MODEL}, most exact first", columns, rows)
    out.line(NEXT)
    return {"model": MODEL, "path": str(output) if output else None, "artifacts": rows}


@command("doctor", example="jaxq doctor --json")
def doctor(out: Output) -> dict[str, Any]:
    """Tests integer results on this machine, and shows versions and processor features.

    Names the installed versions that are known to be wrong, and what is done about it. With memory,
    folders and variables this is what the report of a bug needs. Exit code 1: a result is wrong."""
    from jq.reporting.doctor import examine

    with out.progress() as progress:
        document = examine(progress)
    kinds = ("versions", "cpu", "system", "environment")
    facts = {key: value for kind in kinds for key, value in document[kind].items()}
    facts |= {k: size(v) for k, v in facts.items() if k.endswith("_bytes") and v is not None}
    facts["drivers"] = document["drivers"]
    rows = [
        {"what": key, "here": " ".join(value) if isinstance(value, list) else value}
        for key, value in facts.items()
    ]
    out.table("this machine", ("what", "here"), rows)
    defects = document["known_defects"]
    if defects:
        out.table("known to be wrong in these versions", ("version", "wrong", "remedy"), defects)
    tests = [
        {**t, "result": "equal bits" if t["passed"] else t["reason"]} for t in document["self_test"]
    ]
    out.table("integer products against NumPy", ("target", "result"), tests)
    if not document["ok"]:
        out.code = 1
    return document
