#!/usr/bin/env python3
"""Defects of JAX and IREE that we work around, at other versions of them: which are mended?

    scripts/traps.py                      # the newest versions on PyPI
    scripts/traps.py --iree 3.14.0 --jax 0.11.0
    scripts/traps.py --iree ""            # JAX alone, beside the IREE that is installed

The packages go to a folder of their own, which Python searches first; nothing that is installed
changes. A trap that passes is a defect that is mended. The last lines name what can go: the mends
and other workarounds all of whose traps are mended. A test that fails otherwise, crashes or does
not end is said too, as soon as it is known: a workaround may no longer be right.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from suites.reported import outcomes  # noqa: E402 - found by the line above

from jq.passes.iree_mends.mend import defects  # noqa: E402

WRONG = {"failed", "crashed", "endless"}


def packages(jax: str | None, iree: str | None) -> list[str]:
    """Requirements for pip; None stands for the newest version, an empty text for no package."""
    kinds = (
        ("jax", jax),
        ("jaxlib", jax),
        ("iree-base-compiler", iree),
        ("iree-base-runtime", iree),
    )
    return [f"{name}=={version}" if version else name for name, version in kinds if version != ""]


def traps() -> list[str]:
    """The files of all traps."""
    return sorted({f"tests/{t.partition('::')[0]}" for d in defects() for t in d.traps})


def gone(found: Mapping[str, set[str]]) -> Iterator[str]:
    """Passes and others that can go, by the outcomes of tests."""
    needed: dict[str, list[str]] = defaultdict(list)
    for defect in defects():
        needed[defect.by] += defect.traps
    for name, tests in needed.items():
        if tests and all(found.get(f"tests/{test}") == {"mended"} for test in tests):
            yield name


def main(
    jax: Annotated[str | None, typer.Option(help="A version of JAX; the newest.")] = None,
    iree: Annotated[str | None, typer.Option(help="A version of IREE; the newest.")] = None,
    tests: Annotated[list[str] | None, typer.Option(help="Files to run; all traps.")] = None,
    limit: Annotated[float, typer.Option(help="Seconds that one test may take.")] = 120.0,
) -> None:
    found: Counter[str] = Counter()
    by_test: dict[str, set[str]] = defaultdict(set)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "packages"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        if wanted := packages(jax, iree):
            subprocess.run([*pip, *wanted], check=True)
        for each in distributions(path=[str(folder)]):
            print(f"{each.name} {each.version}", flush=True)
        env = os.environ | {"PYTHONPATH": str(folder)}
        for test, outcome in outcomes(tests or traps(), env, ROOT, limit):
            found[outcome] += 1
            by_test[test.partition("[")[0]].add(outcome)
            if outcome == "mended" or outcome in WRONG:
                print(f"{outcome}: {test}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(found.items())))
    for name in gone(by_test):
        print(f"can go: {name}")
    if not found:
        print("the tests could not be run with these versions")
    raise typer.Exit(1 if not found or WRONG & found.keys() else 0)


if __name__ == "__main__":
    typer.run(main)
