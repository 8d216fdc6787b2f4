"""Completion in a shell: names that exist: Typer shows those that begin as what is there."""

from pathlib import Path

from jq.base.system.folders import data_names

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
