"""Arguments and options that several commands share."""

import re
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from jq.base.errors import UserError
from jq.base.system.folders import data_names
from jq.base.system.processor import MOST_THREADS
from jq.cli.language import is_language_model, one_token

Completion = Callable[..., list[str]]  # of nothing, or of what is there


def option(usage: str, help: str, complete: Completion | None, panel: str | None) -> Any:
    """An option by its usage: `-n --name METAVAR 1..9` with its names (where they are not that of
    the parameter), what stands for its value, and the least and largest one."""
    words = usage.split(" ")
    flags = [word for word in words if word.startswith("-")]
    bounds = [word for word in words if re.fullmatch(r"[\d.]*\.\.[\d.e]*", word)]
    least, most = (literal_eval(end or "None") for end in (*bounds, "..")[0].rsplit("..", 1))
    metavar = " ".join(word for word in words if word not in (*flags, *bounds)) or None
    more: Any = {"metavar": metavar, "autocompletion": complete, "rich_help_panel": panel}
    return typer.Option(*flags, help=help, min=least, max=most, **more)


# Completion in a shell: names that exist, found without importing a compiler. Typer shows those
# that begin as what is there.
MODELS = (".py", ".mlir", ".mlirbc", ".jaxexport", ".onnx", ".tflite", ".tosa", ".gguf")


def pipelines(incomplete: str) -> list[str]:
    return [*data_names("pipelines"), *files(incomplete, ".toml")]


def targets(incomplete: str) -> list[str]:
    """Completes the last name of a list by comma."""
    from jq.target.target import SAME

    before, comma, _ = incomplete.rpartition(",")
    every = (f"{before}{comma}{name}" for name in (*data_names("targets"), *SAME))
    return [*every, *files(incomplete, ".toml")]


def levels() -> list[str]:
    return ["float", "qdq", "integer", "target"]


def models(incomplete: str) -> list[str]:
    """The built-in ones, and files of models."""
    from jq.models import names

    return [*(f"jq.models:{name}" for name in names()), *files(incomplete, *MODELS)]


def settings() -> list[str]:
    from jq.reporting.reference import settings

    return [f"{row['name']}=" for row in settings()]


def metrics() -> list[str]:
    from jq.driver.comparison.metrics import NAMES

    return list(NAMES)


def files(incomplete: str, *ends: str) -> list[str]:
    """Files with these endings, and folders, where a path that is begun leads."""
    start = incomplete.rpartition("/")[2]
    folder = incomplete.removesuffix(start)
    try:
        there = sorted(Path(folder or ".").iterdir())
    except OSError:
        return []
    there = [p for p in there if start or not p.name.startswith(".")]
    return [f"{folder}{p.name}{'/' * p.is_dir()}" for p in there if p.is_dir() or p.suffix in ends]


# Options that several commands share, as a docstring tells those of one (`jq.cli.command`).
_FILE = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
SHARED = "\n" + _FILE.replace("{MOST_THREADS}", f"{MOST_THREADS}")
COMPLETE: dict[str, Completion] = {
    "model": models,
    "given": models,
    "emit": levels,
    "pipeline": pipelines,
    "target": targets,
    "settings": settings,
    "metric": metrics,
}
DEFAULT_PIPELINE = "int8-dynamic"
DEFAULT_TARGET = "llvm-cpu"
# What commands ask for as the arguments of `jq.compile`: type and default by name.
ASKED: dict[str, tuple[Any, Any]] = {
    "pipeline": (str, DEFAULT_PIPELINE),
    "target": (str, DEFAULT_TARGET),
    "calibration": (Path | None, None),
    "ranges": (Path | None, None),
    "settings": (list[str] | None, None),
    "rules": (list[str] | None, None),
    "allow_dynamic": (bool, False),
    "strict_encodings": (bool, False),
    "sizes": (list[str] | None, None),
    "values": (list[str] | None, None),
}
SIZED = {name: ASKED[name] for name in ("sizes", "values")}
CHOSEN = {"pipeline": (str | None, None), "target": (str | None, None)}  # by the command, if none
WORKERS = {"jobs": (int, 1), "dask": (str | None, None), "ray": (str | None, None)}
JUDGED = {"metric": (list[str] | None, None), "labels": (Path | None, None)}
MEASURED = JUDGED | WORKERS


def asked(*left_out: str) -> dict[str, tuple[Any, Any]]:
    """Those that a command asks for: all but some."""
    return {name: each for name, each in ASKED.items() if name not in left_out}


def sized(model: str, given: dict[str, Any]) -> Any:
    """The model with the `sizes` and `values` that are taken out of what is given, when there are
    any. Of a language model the step that generates a token."""
    sizes, values = given.pop("sizes"), given.pop("values")
    if is_language_model(model):
        if sizes or values:
            raise UserError(f"--{'size' if sizes else 'value'} is not for language models")
        return one_token(Path(model))
    if not sizes and not values:
        return model
    from jq.frontends.source import Sized
    from jq.target.rules import parse_assignments

    return Sized(model, parse_assignments(sizes or []), parse_assignments(values or []))


def workers(given: dict[str, Any]) -> Any:
    """The workers that one of three options asks for, which it takes out of what is given."""
    from jq.artifact.jobs import Workers, as_workers

    jobs, dask, ray = (given.pop(name) for name in WORKERS)
    if sum([jobs > 1, dask is not None, ray is not None]) > 1:
        raise UserError("--jobs, --dask and --ray are three ways to share work: give one")
    if ray is not None:
        return as_workers("ray" if ray == "auto" else ray)
    return Workers(jobs) if dask is None else as_workers(dask)


def judged(given: dict[str, Any]) -> dict[str, Any]:
    """The metrics and labels that it takes out of what is given, as functions take them."""
    from jq.base import npz

    metric, labels = (given.pop(name) for name in JUDGED)
    return {"metric": metric or None, "labels": None if labels is None else npz.read_array(labels)}
