"""`jaxq estimate` against the cycles that Arm's compiler Vela predicts, layer by layer.

    scripts/check.py vela_cycles                              # four networks, two devices
    scripts/check.py vela_cycles unet --device ethos-u55-256 --layers

Both are of the same calibrated program. Vela's rows are summed by layer: what has no name of its
own belongs to the layer that follows. The share of the total and the rank correlation of the layers
are printed; `--layers` prints these, too. The exit code is 1 where a total is off by more than 20 %
or a rank correlation is below 0.9.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from scipy.stats import spearmanr

import jq
import jq.models
from checks.exports import NETWORKS, vela
from jq.device.assumed import planned_job
from jq.device.estimating import estimated
from jq.device.exporting import PIPELINE
from jq.driver.job import prepare_job
from jq.driver.request import Request

MODELS = ("digits_cnn", "mobilenet", "resnet", "unet")
DEVICES = "ethos-u55-256,ethos-u85-256"
SETTINGS = {"recovery": False}
TOTAL, RANK = 0.2, 0.9
HOST = ("convert", "multiply")  # floats become codes, and codes floats: not on the device


def layers(model: jq.Model, device: str) -> dict[str, tuple[float, float]]:
    """Our cycles and Vela's of each layer that both have."""
    target = device.rpartition("-")[0]
    ours = defaultdict[str, float](float)
    job = prepare_job(model, Request(PIPELINE, target, SETTINGS))
    for row in estimated(planned_job(job))["layers"]:
        if row["op"] not in HOST:
            ours[_base(row["name"])] += row["cycles"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tosa"
        found = jq.export(model, path, target=target, settings=SETTINGS)
        said, good = vela(path, device, "--verbose-performance")
        if not good:
            raise typer.BadParameter(said)
        (result,) = found["results"]
        # A result has the model's name for it, not that of the layer, which is the last.
        known = {name: name for name in ours} | {_base(result["name"]): list(ours)[-1]}
        with (Path(folder) / "m_per-layer.csv").open() as file:
            theirs = _of_vela(csv.DictReader(file), known)
    return {name: (ours[name], n) for name, n in theirs.items()}


def _of_vela(rows: Iterable[Mapping[str, str]], known: Mapping[str, str]) -> dict[str, float]:
    cycles, waiting, last = defaultdict[str, float](float), 0.0, ""
    for row in rows:
        waiting += float(row["Op Cycles"])
        name = known.get(_base(row["Name"]))
        if name and not row["Name"].endswith("_int32"):  # of what its reader needs
            cycles[name] += waiting
            waiting, last = 0.0, name
    if last:
        cycles[last] += waiting
    return {name: n for name, n in cycles.items() if n}


def _base(name: str) -> str:
    """A layer's name without what tells its parts apart."""
    return re.sub(r"( result.*|#\d+|/t?\d+)$", "", name)


def main(
    model: Annotated[
        list[str] | None, typer.Argument(help=f"Default: {', '.join(MODELS)}.")
    ] = None,
    device: Annotated[str, typer.Option(help="As Vela calls them, by comma.")] = DEVICES,
    image: Annotated[int, typer.Option(help="Pixels of a side, but of digits_cnn.")] = 96,
    show: Annotated[bool, typer.Option("--layers", help="Print each layer.")] = False,
) -> None:
    bad = False
    for each in device.split(","):
        for name in model or MODELS:
            small = name == "digits_cnn"
            built = jq.models.build(name, batch=1) if small else NETWORKS[name](image)
            found = layers(built, each)
            ours, theirs = zip(*found.values(), strict=True)
            for layer, (a, b) in found.items() if show else ():
                print(f"{a / b:8.2f} {a:12.0f} {b:12.0f} {layer}")
            total, rank = sum(ours) / sum(theirs), spearmanr(ours, theirs).statistic
            bad |= abs(total - 1) > TOTAL or rank < RANK
            print(
                f"{each} {name}: {sum(ours):.0f} cycles, Vela {sum(theirs):.0f},"
                f" ratio {total:.3f}, rank {rank:.3f} of {len(found)} layers",
                flush=True,
            )
    raise typer.Exit(int(bad))
