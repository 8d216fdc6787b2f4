"""Which of the other runtimes are there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from peers.case import Skipped


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
