"""Builds the contenders' programs and measures their error; what was built before is kept."""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.system.processor import this_processor
from jq.driver.comparison.outputs import compare_outputs, samples_of
from peers.case import EXPORT, Arrays, Contender, Skipped, Source, digest_of
from peers.exact import exact_program
from peers.programs import RUNTIMES

FACTS = "built.json"
NCHW = ("onnxruntime", "openvino")  # they take images so


@dataclass(frozen=True)
class Built:
    """A program on disk, ready to be measured."""

    contender: Contender
    path: Path
    inputs: Arrays  # of one call, in its layout
    repeats: int
    error: Mapping[str, float]
    seconds: float
    bytes: int
    operations: int = 0  # of a call, where that is what is measured


def build_all(
    source: Source, contenders: Sequence[Contender], say: Callable[[str], None]
) -> tuple[list[Built], dict[str, str]]:
    """Every program that can be had, and why the others cannot."""
    found, failed = [], {}
    for contender in contenders:
        try:
            found.append(_built(source, contender, say))
        except Skipped as error:
            failed[contender.name] = str(error)
        except Exception as error:  # any failure of another's quantizer or compiler
            lines = str(error).strip().splitlines() or [""]
            failed[contender.name] = f"{type(error).__name__}: {lines[0]}"[:300]
            traceback.print_exc(file=sys.stderr)
    return found, failed


def _built(source: Source, contender: Contender, say: Callable[[str], None]) -> Built:
    folder = source.folder / contender.program.replace(" ", "_")
    facts = _program(source, contender, folder, say)
    path = folder / facts["file"]
    measured = f"{contender.name}, {source.samples} inputs, and on exact integers"
    if measured not in facts["errors"]:
        facts["errors"][measured] = _error(source, contender, path)
        (folder / FACTS).write_text(json.dumps(facts, indent=1))
    return Built(
        contender=contender,
        path=path,
        inputs=_inputs(source, contender, source.evaluation[:1])[0],
        repeats=source.case.repeats,
        error=facts["errors"][measured],
        seconds=facts["seconds"],
        bytes=facts["bytes"],
    )


def _program(
    source: Source, contender: Contender, folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    fingerprint = _fingerprint(source, contender)
    facts = _facts(folder / FACTS)
    if facts.get("fingerprint") == fingerprint:
        return facts
    say(f"{source.case.name}: building {contender.program}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    start = time.perf_counter()
    file = contender.build(source, folder)
    return {
        "fingerprint": fingerprint,
        "file": file,
        "seconds": time.perf_counter() - start,
        "bytes": sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()),
        "errors": {},
    }


def _inputs(source: Source, contender: Contender, calls: Sequence[Arrays]) -> list[Arrays]:
    if contender.runtime in NCHW:
        return source.onnx_inputs(calls)
    return [[np.array(x, order="C") for x in call] for call in calls]


def _error(source: Source, contender: Contender, path: Path) -> dict[str, float]:
    """Error of the worst output, against float32 in JAX; with labels, also the accuracies. Of a
    peer's integers also `exact_sqnr_db`: that of the same program with sums that do not saturate.
    """
    found = _compared(source, contender, RUNTIMES[contender.runtime](path, contender.options, 1))
    if not contender.ours and (exact := exact_program(contender, path)):
        found["exact_sqnr_db"] = _compared(source, contender, exact)["sqnr_db"]
    return found


def _compared(
    source: Source, contender: Contender, program: Callable[[Arrays], Arrays]
) -> dict[str, float]:
    calls = _inputs(source, contender, source.evaluation)
    samples = [samples_of(inputs) for inputs in source.evaluation]
    labels = source.labels
    outputs, score = [program(inputs) for inputs in calls], source.case.score
    compared = compare_outputs(
        source.reference,
        outputs,
        samples=samples,
        labels=None if labels is None else labels[: sum(samples)],
        metrics=() if labels is None else ("accuracy",),
    )
    worst = min(compared.outputs, key=lambda o: o.sqnr_db)
    found = {name: getattr(worst, name) for name in ("sqnr_db", "cosine", "cosine_min")}
    if both := compared.metrics.get("accuracy"):
        found |= {"accuracy": both["quantized"], "float_accuracy": both["float"]}
    if score is not None:
        figures = (score.of(given, source.reference) for given in (outputs, source.reference))
        found |= zip(("accuracy", "float_accuracy"), figures, strict=True)
    return found


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return facts


def _fingerprint(source: Source, contender: Contender) -> str:
    """Digest of all that the program depends on."""
    build: Any = contender.build
    if isinstance(build, partial):
        build, given = build.func, dict(build.keywords)
    else:
        given = {}
    facts = [contender.program, given, dict(contender.versions), this_processor().model]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    digest.update(inspect.getsource(build).encode())
    files = [source.case.files, EXPORT if contender.runtime in NCHW else ()]
    digest.update(digest_of(*files).encode())
    return digest.hexdigest()
