"""`jaxq estimate` against the cycles that Arm's compiler Vela predicts, layer by layer.

    scripts/check.py vela_cycles                              # four networks, two devices
    scripts/check.py vela_cycles unet --device ethos-u55-256 --fit

Vela's rows are summed by layer: what has no name of its own belongs to the layer that follows. The
share of the total and the rank correlation of the layers are printed. `--fit` looks for the rates
and the cycles of starting a layer with which the formula of `jq.device.estimating` is closest to
Vela: the least mean of |log(estimate / Vela)| over all layers, plus ten times that of each total,
by Nelder and Mead's method from the target's own figures. The multipliers' rate is the device's.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.optimize import minimize
from scipy.stats import spearmanr

import jq
import jq.models
from checks.exports import NETWORKS, vela
from jq.device.assumed import Planned, planned
from jq.device.estimating import estimated
from jq.device.exporting import PIPELINE
from jq.target.device_table import Hardware
from jq.target.target import load_target

RATES = ("elements_per_cycle", "sram_bytes_per_cycle", "dram_bytes_per_cycle")
MODELS = ("digits_cnn", "mobilenet", "resnet", "unet")
DEVICES = "ethos-u55-256,ethos-u85-256"
FAST = 1e12  # a rate that takes no time


@dataclass(frozen=True)
class Layers:
    """Work of each layer (products by their rate, elements, on-chip bytes, bytes off the chip):
    float64 [layers, 4], and Vela's cycles of it."""

    names: tuple[str, ...]
    work: np.ndarray
    vela: np.ndarray

    def cycles(self, figures: np.ndarray) -> np.ndarray:
        """The estimate, by `op_cycles` and the rates of `RATES`."""
        return figures[0] + (self.work / np.array([1, *figures[1:]])).max(1)


def layers(model: jq.Model, device: str) -> Layers:
    """What both say of a model."""
    target = device.rpartition("-")[0]
    found = planned(model, target, PIPELINE, None, None)
    hardware = found.job.target.hardware
    assert hardware is not None
    work = [_by_layer(found, hardware, rate) for rate in ("", *RATES)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tosa"
        jq.export(model, path, target=target, settings={"recovery": False})
        said, good = vela(path, device, "--verbose-performance")
        if not good:
            raise typer.BadParameter(said)
        with (Path(folder) / "m_per-layer.csv").open() as file:
            of_vela = _of_vela(csv.DictReader(file), set(work[0]))
    names = tuple(of_vela)
    return Layers(
        names,
        np.array([[w.get(n, 0) for w in work] for n in names], float),
        np.array([of_vela[n] for n in names], float),
    )


def _by_layer(found: Planned, hardware: Hardware, rate: str) -> dict[str, float]:
    """The cycles of each layer where nothing but one rate takes time, which is 1; of the products
    where it is none."""
    figures: dict[str, Any] = dict.fromkeys(RATES, FAST) | {"op_cycles": 0}
    if rate:
        figures |= {rate: 1, "macs_per_cycle": dict.fromkeys(hardware.macs_per_cycle, FAST)}
    target = found.job.target.model_copy(update={"hardware": hardware.model_copy(update=figures)})
    cycles = defaultdict[str, float](float)
    for row in estimated(replace(found, job=replace(found.job, target=target)))["layers"]:
        cycles[_base(row["name"])] += row["cycles"]
    return dict(cycles)


def _of_vela(rows: Any, names: set[str]) -> dict[str, float]:
    cycles, waiting, last = defaultdict[str, float](float), 0.0, ""
    for row in rows:
        waiting += float(row["Op Cycles"])
        if (name := _base(row["Name"])) in names:
            cycles[name] += waiting
            waiting, last = 0.0, name
    if last:
        cycles[last] += waiting
    return {name: n for name, n in cycles.items() if n}


def _base(name: str) -> str:
    """A layer's name without what tells its parts apart."""
    return re.sub(r"( result.*|#\d+|/\d+)$", "", name)


def _loss(logs: np.ndarray, found: list[Layers]) -> float:
    parts = []
    for each in found:
        cycles = each.cycles(np.exp(logs))
        parts.append(np.abs(np.log(cycles / each.vela)).mean())
        parts.append(10 * abs(np.log(cycles.sum() / each.vela.sum())))
    return float(np.mean(parts))


def main(
    model: Annotated[
        list[str] | None, typer.Argument(help=f"Default: {', '.join(MODELS)}.")
    ] = None,
    device: Annotated[str, typer.Option(help="As Vela calls them, by comma.")] = DEVICES,
    image: Annotated[int, typer.Option(help="Pixels of a side, but of digits_cnn.")] = 96,
    fit: Annotated[bool, typer.Option(help="Look for the figures that are closest.")] = False,
) -> None:
    for each in device.split(","):
        hardware = load_target(each.rpartition("-")[0]).hardware
        assert hardware is not None
        names = model or MODELS
        built = [
            jq.models.build(n, batch=1) if n == "digits_cnn" else NETWORKS[n](image) for n in names
        ]
        found = [layers(m, each) for m in built]
        figures = np.array([getattr(hardware, k) for k in ("op_cycles", *RATES)], float)
        if fit:
            start = np.log(figures)
            options = {"maxiter": 4000, "maxfev": 4000}
            result = minimize(_loss, start, (found,), "Nelder-Mead", options=options)
            figures = np.exp(result.x)
            said = zip(("op_cycles", *RATES), figures, strict=True)
            print(f"{each}: {', '.join(f'{k} = {v:.4g}' for k, v in said)}")
        for name, of in zip(names, found, strict=True):
            cycles = of.cycles(figures)
            total, rank = cycles.sum() / of.vela.sum(), spearmanr(cycles, of.vela).statistic
            print(
                f"{each} {name}: {cycles.sum():.0f} cycles, Vela {of.vela.sum():.0f},"
                f" ratio {total:.3f}, rank {rank:.3f} of {len(of.names)} layers",
                flush=True,
            )
