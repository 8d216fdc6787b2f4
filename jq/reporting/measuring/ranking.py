"""Several artifacts of one model, ranked: size, error against the float model, latency."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from jq.base.errors import UserError
from jq.base.progress import Progress, heard
from jq.base.tables import Shown, plain_table
from jq.driver.comparison.metrics import Metric
from jq.driver.comparison.outputs import worst
from jq.driver.loading import load
from jq.frontends.source import AnyModel, Data, check_files, trace
from jq.ir.oracle.xla import XlaExecutable
from jq.reporting.measuring.evaluation import check_metrics, evaluation_of
from jq.reporting.measuring.measure import bench, check_same_model

COLUMNS = ("artifact", "pipeline", "bytes", "sqnr_db", "cosine_min", "median_ms")


@dataclass(frozen=True, repr=False)
class Ranking(Shown):
    """One row an artifact, the most exact first: `artifact`, `pipeline`, `bytes` (module and
    parameters), `sqnr_db` and `cosine_min` of the worst output, the metrics that were asked for,
    and, where it was measured, `median_ms`."""

    rows: tuple[dict[str, Any], ...]

    def columns(self) -> tuple[str, ...]:
        """The columns that have a value, in their order."""
        names = dict.fromkeys((*COLUMNS, *(name for row in self.rows for name in row)))
        return tuple(n for n in names if any(row.get(n) is not None for row in self.rows))

    def to_dict(self) -> dict[str, Any]:
        return {"artifacts": [dict(row) for row in self.rows]}

    def table(self) -> Table:
        names = self.columns()
        table = plain_table(*names, title="Artifacts, most exact first")
        for row in self.rows:
            table.add_row(*(_text(row.get(name)) for name in names))
        return table

    def markdown(self) -> str:
        """The table for a Markdown page."""
        names = self.columns()
        lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        cells = ([_text(row.get(n)).replace("|", "\\|") for n in names] for row in self.rows)
        lines += [f"| {' | '.join(row)} |" for row in cells]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """The table as comma-separated values."""
        out = io.StringIO()
        writer = csv.DictWriter(out, self.columns(), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def rank(
    model: AnyModel,
    artifacts: Sequence[str | Path],
    data: Data = None,
    *,
    metric: Metric | Sequence[Metric] | None = None,
    labels: Any = None,
    latency: bool = False,
    seconds: float = 2.0,
    progress: Progress | None = None,
) -> Ranking:
    """Compares several artifacts with their float model, which runs once.

    Args:
        data, metric, labels: as in `jq.compare`.
        latency: also measure each artifact, for `seconds`, in a process of its own.

    Raises:
        UserError: an artifact cannot be read, or is of another model."""
    if not artifacts:
        raise UserError("nothing to compare", hint="give the directories of artifacts")
    check_files(data)
    loaded = [load(path) for path in artifacts]
    source = trace(check_metrics(model, metric, labels))
    for path, compiled in zip(artifacts, loaded, strict=True):
        check_same_model(source, compiled, str(path))
    given, told = evaluation_of(source, data, labels, metric), heard(progress)
    reference = XlaExecutable(source.program)
    wanted = [reference(*arrays) for arrays in given.tracked(told, "float model")]
    rows = []
    for i, (path, compiled) in enumerate(zip(artifacts, loaded, strict=True)):
        told("compare", i / len(loaded))
        found = given.compare(wanted, (compiled.call_flat(arrays) for arrays in given.calls))
        errors, audit = worst(found.outputs), compiled.audit()
        row = {
            "artifact": str(path),
            "pipeline": compiled.manifest.pipeline,
            "bytes": audit.module_bytes + audit.parameter_bytes,
            "sqnr_db": errors["sqnr_db"],
            "cosine_min": errors["cosine_min"],
        }
        row |= {name: both["quantized"] for name, both in found.metrics.items()}
        if latency:
            row["median_ms"] = bench(path, seconds=seconds, progress=progress)["median_ms"]
        rows.append(row)
    return Ranking(tuple(sorted(rows, key=lambda row: -float(row["sqnr_db"]))))
