"""The other runtimes that are installed, and the machine they run on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jq.base.system.processor import this_processor
from jq.kernels import detect
from jq.reporting import doctor
from peers.case import Skipped

PACKAGES = ("onnxruntime", "openvino", "nncf", "onnx", "jax2onnx", "jax", "iree-base-compiler")


def machine() -> dict[str, Any]:
    """The processor, its instructions, and the versions of what is installed."""
    versions: dict[str, str] = {}
    for package in PACKAGES:
        with contextlib.suppress(Skipped):
            versions |= versions_of(package)
    return {
        "cpu": doctor.describe(this_processor()),
        "instructions": detect().name,
        "versions": versions,
    }


def versions_of(*packages: str) -> Mapping[str, str]:
    """Raises `Skipped` with the names of those that are missing."""
    found, missing = {}, []
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        raise Skipped(f"not installed: {', '.join(missing)} (pip install 'jaxq[bench]')")
    return found
