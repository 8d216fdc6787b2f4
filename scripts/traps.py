#!/usr/bin/env python3
"""Defects of JAX and IREE that we work around, at other versions of them: which are mended?

    scripts/traps.py                      # the newest versions on PyPI
    scripts/traps.py --iree 3.14.0 --jax 0.11.0
    scripts/traps.py --iree ""            # JAX alone, beside the IREE that is installed

The packages go to a folder of their own, which Python searches first; nothing that is installed
changes. A test of `tests/traps` that is expected to fail and passes is a defect that is mended: its
workaround can go. One that fails otherwise is said too: a workaround may no longer be right.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer

ROOT = Path(__file__).resolve().parent.parent
MENDED = "[XPASS(strict)]"


def packages(jax: str | None, iree: str | None) -> list[str]:
    """What pip is asked for; of None the newest, of an empty text nothing."""
    kinds = (
        ("jax", jax),
        ("jaxlib", jax),
        ("iree-base-compiler", iree),
        ("iree-base-runtime", iree),
    )
    return [f"{name}=={version}" if version else name for name, version in kinds if version != ""]


def outcomes(report: Path) -> dict[str, str]:
    """By test: `mended`, `there` (the defect), `passed` or `failed`."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if wrong is not None:
            mended = (wrong.get("message") or "").startswith(MENDED)
            outcome = "mended" if mended else "failed"
        elif skipped is not None:
            outcome = "there" if skipped.get("type") == "pytest.xfail" else "skipped"
        else:
            outcome = "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return found


def main(
    jax: Annotated[str | None, typer.Option(help="A version of JAX; the newest.")] = None,
    iree: Annotated[str | None, typer.Option(help="A version of IREE; the newest.")] = None,
    tests: Annotated[Path, typer.Option(help="What to run.")] = ROOT / "tests/traps",
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, report = Path(name) / "packages", Path(name) / "report.xml"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        if wanted := packages(jax, iree):
            subprocess.run([*pip, *wanted], check=True)
        for each in distributions(path=[str(folder)]):
            print(f"{each.name} {each.version}")
        run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
        # A warning of another version is no defect of it.
        run += ["-W", "default", f"--junitxml={report}"]
        env = os.environ | {"PYTHONPATH": str(folder)}
        subprocess.run(run, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=False)
        if not report.exists():
            print("the tests could not be run with these versions")
            raise typer.Exit(1)
        found = outcomes(report)
    for test, outcome in sorted(found.items()):
        if outcome in ("mended", "failed"):
            print(f"{outcome}: {test}")
    print(
        ", ".join(f"{[*found.values()].count(kind)} {kind}" for kind in sorted({*found.values()}))
    )
    raise typer.Exit(1 if "failed" in found.values() else 0)


if __name__ == "__main__":
    typer.run(main)
