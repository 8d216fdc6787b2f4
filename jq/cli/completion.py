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


def files(incomplete: str, *endings: str) -> list[str]:
    """Files with these endings, and folders, that begin so."""
    folder, _, start = incomplete.rpartition("/")
    try:
        there = sorted(Path(folder or ("/" if incomplete.startswith("/") else ".")).iterdir())
    except OSError:
        return []
    names = []
    for path in there:
        if path.name.startswith(start) and not (path.name.startswith(".") and not start):
            if path.is_dir():
                names.append(f"{incomplete[: len(incomplete) - len(start)]}{path.name}/")
            elif path.suffix in endings:
                names.append(f"{incomplete[: len(incomplete) - len(start)]}{path.name}")
    return names


def _starting(names: list[str] | tuple[str, ...], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
