"""The error page: one HTML file that needs no network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.base.progress import Progress, heard
from jq.base.system.files import as_path, check_file, check_folder, written_whole
from jq.driver.comparison.metrics import Metric
from jq.driver.compiled import CompiledModel
from jq.driver.loading import folder_of
from jq.frontends.source import AnyModel, Data
from jq.reporting.report import explorer
from jq.reporting.report.document import render
from jq.reporting.report.facts import gather


def report(
    model: AnyModel,
    directory: CompiledModel | str | Path,
    path: str | Path,
    *,
    data: Data = None,
    metric: Metric | Sequence[Metric] | None = None,
    labels: Any = None,
    calibration: Data = None,
    samples: int = 16,
    seconds: float = 2.0,
    model_explorer: str | Path | None = None,
    command: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Writes the page of an artifact: where its error is, what it takes, how it was decided.

    Args:
        model: see `jq.trace`.
        directory: the artifact: its folder, or what `jq.load` made of it.
        path: the file to write; one that exists is replaced.
        data: see `jq.compare`.
        metric: see `jq.compare`.
        labels: see `jq.compare`.
        calibration: see `jq.compile`.
        samples: calls that layers and histograms are measured on.
        seconds: measuring time of the latency, of the artifact and of the float model each.
        model_explorer: a folder for the graph and its errors, as files of Model Explorer.
        command: what the page says that it was made by.
        progress: see `jq.compile`.

    Raises:
        UserError: the artifact is of another model, or the page cannot be written.

    Example:
        ```python
        jq.report(model, "out/", "report.html", samples=2, seconds=0.1)
        ```"""
    check_file(path := as_path(path))
    if model_explorer is not None:
        check_folder(as_path(model_explorer), force=True)
        if as_path(model_explorer).resolve() == path.resolve():
            raise UserError(f"{path} is named as page and as folder", hint="give two names")
    own, told = folder_of(directory), heard(progress)
    facts = gather(model, own, data, metric, labels, calibration, samples, seconds, command, told)
    with written_whole(path) as temporary:
        # A name of a file that is no UTF-8 is shown by its bytes.
        temporary.write_text(render(facts), encoding="utf-8", errors="backslashreplace")
    if model_explorer is not None:
        rows = {op["name"]: op for op in facts.manifest.ops}
        errors = {layer.name: layer for layer in facts.comparison.layers}
        explorer.write(as_path(model_explorer), facts.graph, errors, rows)
    return path
