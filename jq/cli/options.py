"""Arguments and options that several commands share."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from jq.base.errors import UserError
from jq.base.system.processor import MOST_THREADS
from jq.cli import completion
from jq.cli.language import is_language_model, one_token

Completion = Callable[[str], list[str]]


def option(usage: str, help: str, complete: Completion | None = None) -> Any:
    """An option by its usage: `-n --name METAVAR 1..9` with its names (where they are not that of
    the parameter), what stands for its value, and the least and largest one."""
    words = usage.split(" ")
    flags = [word for word in words if word.startswith("-")]
    bounds = [word for word in words if re.fullmatch(r"[\d.]*\.\.[\d.e]*", word)]
    least, most = [*map(_number, bounds[0].rsplit("..", 1))] if bounds else (None, None)
    metavar = " ".join(word for word in words if word not in (*flags, *bounds)) or None
    return typer.Option(
        *flags, metavar=metavar, help=help, min=least, max=most, autocompletion=complete
    )


def _number(text: str) -> float | None:
    return (int(text) if text.isdigit() else float(text)) if text else None


# Options that several commands share, as a docstring tells those of one (`jq.cli.command`).
SHARED = f"""
    model (<MODEL>): `package.module:name` or `file.py:name` (a jq.Model, or a function of no
        arguments that returns one), a .mlir, .mlirbc, .jaxexport, .onnx, .tflite or .tosa file, or
        a language model: a .gguf file or a folder of Hugging Face.
    artifact (<DIR>): What `jaxq compile` wrote.
    pipeline (-p NAME): A name, or a path to a .toml file.
    target (-t NAME): A name, or a path to a .toml file.
    settings (--set KEY=VALUE): A setting; may be given several times.
    rules (--rule 'PATTERN: KEY=VALUE'): Settings for the ops whose name matches; the first match
        wins. May be given several times.
    calibration (FILE.npz): Calibration samples; the model's own by default.
    ranges (FILE.json): Ranges that `jaxq calibrate` wrote.
    allow_dynamic: Find ranges at run time where calibrated ones are asked for and there are no
        data.
    strict_encodings: Refuse a model that comes quantized in a way that cannot be kept (else a
        warning).
    inputs (IN.npz): Samples; the model's own evaluation set by default.
    metric (NAME): accuracy, top1_agreement, retrieval_agreement, cosine, cosine_min, sqnr_db,
        max_abs_error, or `file.py:name` of a function (outputs, labels). May be given several
        times.
    labels (FILE.npy): Labels of the samples; the model's own by default.
    sizes (--size NAME=N): Value of a symbolic dimension (`b`, or `arg0[0]`); may be given several
        times. `compile` takes several values (NAME=1,8): one artifact, which chooses by its inputs.
    values (--value NAME=V): Fixes an input of an ONNX or TFLite model (`sr=16000`); may be given
        several times.
    threads (N 1..{MOST_THREADS}): Worker threads.
    sign (KEY): Sign the artifact with this Ed25519 private key.
    verify (PUBKEY): The artifact must be signed with this key. May be given several times.
    trust (any|verify): Must a key that you trust have signed the artifact?
    iree_flags (--iree-flag FLAG): One more flag of IREE's compiler, `--iree-flag=--name=value`;
        some start programs or write files. May be given several times.
    jobs (-j N 1..): Processes here that share the work.
    dask (tcp://HOST:PORT): Workers of a Dask scheduler share it.
    ray (auto|ray://HOST:PORT): Workers of a Ray cluster share it.
    force: Replace what an earlier run wrote there.
    timeout (SECONDS): The longest that the compiler, or reading a file, may take; by default an
        hour, or a minute and what the file's size adds.
    max_memory (SIZE): The most memory that either may take, as 4G; by default all that there is, or
        2 GiB and 16 times the file.
    json: Print the result as one JSON document.
    quiet (-q): No progress, no notes.
    verbose (-v): More detail, and the warnings of libraries.
    debug: Show the traceback of an error.
"""
COMPLETE = {
    "model": completion.models,
    "pipeline": completion.pipelines,
    "target": completion.targets,
    "settings": completion.settings,
    "metric": completion.metrics,
}
DEFAULT_PIPELINE = "int8-dynamic"
DEFAULT_TARGET = "llvm-cpu"
# What commands ask for as the arguments of `jq.compile`: type and default by name.
ASKED: dict[str, tuple[Any, Any]] = {
    "pipeline": (str, DEFAULT_PIPELINE),
    "target": (str, DEFAULT_TARGET),
    "calibration": (Path | None, None),
    "ranges": (Path | None, None),
    "settings": (list[str] | None, None),
    "rules": (list[str] | None, None),
    "allow_dynamic": (bool, False),
    "strict_encodings": (bool, False),
    "sizes": (list[str] | None, None),
    "values": (list[str] | None, None),
}


def asked(*left_out: str) -> dict[str, tuple[Any, Any]]:
    """Those that a command asks for: all but some."""
    return {name: each for name, each in ASKED.items() if name not in left_out}


def sized(model: str, given: dict[str, Any]) -> Any:
    """The model, traced at the `sizes` that it takes out of what is given, when there are any; the
    `values` fix inputs of an ONNX file. Of a language model the step that generates a token."""
    sizes, values = given.pop("sizes"), given.pop("values")
    if is_language_model(model):
        if sizes or values:
            raise UserError(f"--{'size' if sizes else 'value'} is not for language models")
        return one_token(Path(model))
    if not sizes and not values:
        return model
    from jq.frontends.source import trace
    from jq.target.rules import parse_assignments

    known = parse_assignments(sizes or [])
    if not values:
        return trace(model, sizes=known)
    if Path(model).suffix not in (".onnx", ".tflite"):
        raise UserError("--value fixes inputs of ONNX and TFLite files", location=model)
    from jq.frontends.onnx import load_checked
    from jq.frontends.source import each_size_of

    fixed = parse_assignments(values)
    first, *others = (
        replace(trace(load_checked(Path(model), each, fixed)), sizes=each)
        for each in each_size_of(Path(model), known)
    )
    return first.joined(others)


def workers(jobs: int, dask: str | None, ray: str | None) -> Any:
    """The workers that one of three options asks for; None where none does."""
    from jq.artifact.jobs import Workers, as_workers

    if sum([jobs > 1, dask is not None, ray is not None]) > 1:
        raise UserError("--jobs, --dask and --ray are three ways to share work: give one")
    if ray is not None:
        return as_workers("ray" if ray == "auto" else ray)
    return Workers(jobs) if dask is None else as_workers(dask)


def read_labels(path: Path | None) -> Any:
    """The array in a `.npy` file; None without one."""
    from jq.base import npz

    return None if path is None else npz.read_array(path)
