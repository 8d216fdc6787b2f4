"""An artifact to tamper with: the one that earlier versions wrote, small and without a compile."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

SAVED = Path(__file__).parents[1] / "artifact/artifacts/schema-1"


def copy_of(folder: Path) -> Path:
    """A copy at `folder/artifact`."""
    return Path(shutil.copytree(SAVED, folder / "artifact"))


def rehashed(folder: Path) -> None:
    """Makes the manifest agree with the files that are there now."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for name, noted in manifest["files"].items():
        content = (folder / name).read_bytes()
        noted |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    path.write_text(json.dumps(manifest))
