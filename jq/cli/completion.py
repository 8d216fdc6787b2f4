"""Completion in a shell: names that exist, found without importing a compiler."""

from pathlib import Path

from jq.base.system.folders import data_names

MODELS = "jq.models:"
FILES = (".py", ".mlir", ".mlirbc", ".jaxexport", ".onnx", ".tflite", ".tosa", ".gguf")
LEVELS = ("float", "qdq", "integer", "target")


def pipelines(incomplete: str) -> list[str]:
    return [*_starting(data_names("pipelines"), incomplete), *files(incomplete, ".toml")]


def targets(incomplete: str) -> list[str]:
    """Completes the last name of a list by comma."""
    from jq.target.target import SAME

    before, comma, last = incomplete.rpartition(",")
    found = _starting([*data_names("targets"), *SAME], last)
    return [f"{before}{comma}{name}" for name in found] + files(incomplete, ".toml")


def levels(incomplete: str) -> list[str]:
    return _starting(LEVELS, incomplete)


def models(incomplete: str) -> list[str]:
    """The built-in ones, and files of models."""
    from jq.models import names

    built_in = [f"{MODELS}{name}" for name in names()]
    return [*_starting(built_in, incomplete), *files(incomplete, *FILES)]


def settings(incomplete: str) -> list[str]:
    from jq.reporting.reference import rows

    return _starting([f"{row['name']}=" for row in rows("settings")], incomplete)


def metrics(incomplete: str) -> list[str]:
    from jq.reporting.reference import rows

    return _starting([row["name"] for row in rows("metrics")], incomplete)


def files(incomplete: str, *ends: str) -> list[str]:
    """Files with these endings, and folders, that begin so."""
    start = incomplete.rpartition("/")[2]
    folder = incomplete.removesuffix(start)
    try:
        there = sorted(p for p in Path(folder or ".").iterdir() if p.name.startswith(start))
    except OSError:
        return []
    there = [p for p in there if start or not p.name.startswith(".")]
    return [f"{folder}{p.name}{'/' * p.is_dir()}" for p in there if p.is_dir() or p.suffix in ends]


def _starting(names: list[str] | tuple[str, ...], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
