#!/usr/bin/env python3
"""The SHA-256 of the manifests of compiled models, with all that the bytes depend on: two machines
of one kind print the same lines.

    scripts/digests.py                                   # digits_cnn, minilm; int8-static
    scripts/digests.py --model digits_cnn --pipeline int8-dynamic

A manifest holds the digest of every file, so that one line stands for the artifact. Nothing is
taken from the cache directory.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jq  # noqa: E402 - found by the lines above
from jq.artifact.keys import versions  # noqa: E402
from jq.base.system.processor import this_processor  # noqa: E402

PACKAGES = ("jaxlib", "iree-base-compiler", "numpy", "scipy")


def here() -> str:
    """Everything that the bytes depend on besides the model: the processor, the cores in use, the
    packages, and this one's code."""
    found, count = this_processor(), len(os.sched_getaffinity(0))
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    core = os.environ.get("OPENBLAS_CORETYPE", "chosen by OpenBLAS")
    features = hashlib.sha256(" ".join(sorted(map(str, found.flags))).encode()).hexdigest()[:8]
    code = versions()[-1][:12]
    return (
        f"{found.model or found.machine} (flags {features}), {count} processors, {packages},"
        f" OpenBLAS core {core}, code {code}"
    )


def digest(model: str, pipeline: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = str(Path(name) / "cache")
        folder = jq.compile(f"jq.models:{model}", pipeline, cache=False).save(Path(name) / "out")
        return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


def main(
    model: Annotated[list[str] | None, typer.Option(help="Built-in models.")] = None,
    pipeline: Annotated[list[str] | None, typer.Option(help="Pipelines.")] = None,
) -> None:
    print(here())
    for each in model or ["digits_cnn", "minilm"]:
        for name in pipeline or ["int8-static"]:
            print(f"{each} {name} {digest(each, name)}", flush=True)


if __name__ == "__main__":
    typer.run(main)
