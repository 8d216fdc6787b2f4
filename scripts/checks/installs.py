"""Fresh environments in which this package and Flax are installed, in either order: do they agree?

    scripts/check.py installs                          # with the Python that runs this
    scripts/check.py installs python3.13 python3.11    # with each of these

Prints the versions that each environment ends with. Exit code 1: `pip check` finds a conflict, or
what was installed first was replaced. Takes a minute or two and 1.5 GB for each interpreter.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

OURS = f"{Path(__file__).resolve().parents[2]}[examples]"
ORDERS = {
    "jaxq, then flax": ([OURS], ["flax"]),
    "flax, then jaxq": (["flax"], [OURS]),
    "flax and jax, then jaxq": (["flax", "jax"], [OURS]),
    "both at once": ([OURS, "flax"],),
}
SHOWN = ("jax", "jaxlib", "flax")


def versions(python: Path) -> dict[str, str]:
    """Versions of the packages that are shown, as installed."""
    run = [str(python), "-m", "pip", "list", "--format=json"]
    found = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    return {each["name"]: each["version"] for each in found if each["name"] in SHOWN}


def install(python: str, steps: tuple[list[str], ...], folder: Path) -> tuple[str, str]:
    """The versions at the end, and what is wrong with them (nothing)."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    own, before = folder / "bin/python", dict[str, str]()
    for step in steps:
        subprocess.run([own, "-m", "pip", "install", "-q", *step], check=True)
        after = versions(own)
        if replaced := [name for name in before if before[name] != after[name]]:
            return str(after), f"{', '.join(replaced)} of {before} was replaced"
        before = after
    check = subprocess.run([own, "-m", "pip", "check"], capture_output=True, text=True)
    return str(before), check.stdout.strip() if check.returncode else ""


def main(
    pythons: Annotated[list[str] | None, typer.Argument(help="Interpreters; this one.")] = None,
) -> None:
    failed = False
    for python in pythons or [sys.executable]:
        for name, steps in ORDERS.items():
            with tempfile.TemporaryDirectory() as folder:
                found, wrong = install(python, steps, Path(folder))
            failed |= bool(wrong)
            print(f"{python}: {name}: {found}: {wrong or 'no conflict'}", flush=True)
    raise typer.Exit(int(failed))
