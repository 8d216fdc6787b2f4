"""Golden vectors of an integer program: written, and what a device wrote against them."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.load import read_manifest
from jq.base.errors import UserError
from jq.base.guard.limits import require_memory
from jq.base.npz import read_array
from jq.base.system.files import as_path, read_text
from jq.base.system.folders import new_folder
from jq.device.forms.verifying import computing
from jq.device.steps import steps_of
from jq.device.units import Unit, as_program, units
from jq.driver.compiled import CompiledModel
from jq.driver.loading import folder_of
from jq.frontends.source import trace
from jq.ir import Program, dtype_of, shape_of
from jq.ir.oracle.xla import XlaExecutable
from jq.reporting.benchmark.session import random_inputs

RUNNER = ("runner/replay.py", "replay_ops.py")  # the second says what each step means
INDEX, LIMIT = "index.json", 16  # MiB of a unit's largest case
_MOST, _HEADER = 1 << 40, 1 << 17  # MiB that anybody asks for; bytes in front of an array at most
ROUNDING = (
    "a rescale is an int32 mantissa and a shift: rounding doubling high multiply, then a rounding"
    " right shift, ties away from zero; a quantize of floats rounds ties to even"
)
Vectors = tuple[dict[str, Any], dict[str, np.ndarray]]  # a row of the index, arrays by file


def vectors(
    artifact: CompiledModel | str | Path, output: str | Path, *, limit: float = LIMIT
) -> dict[str, Any]:
    """Writes golden vectors of every unit of an artifact's integer program (`jq.device.units`).

    Cases of a unit: what it reads in a run of the program on random inputs, its smallest and its
    largest inputs, and random ones over the whole range of their type.

    Args:
        artifact: compiled with `--emit integer`.
        output: a new folder: `index.json`, the arrays, and `replay.py`, 30 lines that need NumPy
            and `replay_ops.py` alone, where each step is defined.
        limit: MiB that a case of a unit may take; larger units are left out and listed.

    Returns:
        The index: `{"artifact", "limit", "rounding", "ops": [...], "left_out": [...]}`.

    Raises:
        UserError: the artifact has no integer level, or the folder exists.

    Example:
        ```python
        jq.compile(model, "int8-static", emit=["integer"]).save("with-integer/")
        index = jq.vectors("with-integer/", "vectors/")
        print(len(index["ops"]))
        ```"""
    with new_folder(as_path(output)) as folder:
        return _write(artifact, folder, limit)


def _write(artifact: CompiledModel | str | Path, folder: Path, limit: float) -> dict[str, Any]:
    rows, left_out, program = [], [], integer_level(folder_of(artifact))
    for row, arrays in _made(program, limit):
        if "reason" in row:
            left_out.append(row)
            continue
        rows.append(row)
        for file, array in arrays.items():
            (folder / file).parent.mkdir(exist_ok=True)
            np.save(folder / file, array)
    index = {"artifact": str(artifact), "limit": limit, "rounding": ROUNDING}
    index |= {"ops": rows, "left_out": left_out}
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    for file in RUNNER:
        shutil.copy(Path(__file__).parent / file, folder)
    return index


def check_vectors(artifact: str | Path, run: str | Path) -> dict[str, Any]:
    """Compares the outputs in a folder of the same layout, whoever wrote them, with the artifact.

    Returns:
        `{"ops": N, "different": [{"name", "op", "case", "file", "index", "expected", "got"}]}`, the
        first element that differs of each case."""
    folder = as_path(run)
    limit = _limit(folder / INDEX)
    count, different = 0, []
    for row, arrays in _made(integer_level(as_path(artifact)), limit):
        if "reason" in row:
            continue
        count += 1
        for case in row["cases"]:
            found = _difference(folder / case["output"], arrays[case["output"]])
            if found:
                facts = {"name": row["name"], "op": row["op"], "case": case["kind"]}
                different.append({**facts, "file": case["output"], **found})
    return {"ops": count, "different": different}


def _limit(path: Path) -> float:
    """The limit that an index was written with; `UserError` where it is none of ours."""
    text = read_text(path)
    try:
        limit = json.loads(text)["limit"]
        sound = type(limit) in (int, float) and 0 <= limit <= _MOST
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        hint = "copy the one that `jaxq vectors` wrote"
        raise UserError("this is no index of golden vectors", location=str(path), hint=hint)
    return float(limit)


def _difference(path: Path, want: np.ndarray) -> dict[str, Any] | None:
    if not path.is_file():
        return {"index": None, "expected": None, "got": "no such file"}
    if (size := path.stat().st_size) > want.nbytes + _HEADER:
        return {"index": None, "expected": f"{want.nbytes} bytes", "got": f"{size} bytes"}
    try:
        got = read_array(path)
    except UserError:  # cut off, empty, or of objects
        return {"index": None, "expected": None, "got": "no array of numbers"}
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        facts = [f"{a.dtype}{list(a.shape)}" for a in (want, got)]
        return {"index": None, "expected": facts[0], "got": facts[1]}
    places = np.argwhere(got != want)
    if not len(places):
        return None
    at = tuple(places[0])
    return {"index": [int(i) for i in at], "expected": want[at].item(), "got": got[at].item()}


def integer_level(artifact: Path) -> Program:
    path, known = artifact / "integer.mlirbc", read_manifest(artifact).files
    if path.name not in known:
        raise UserError(f"{artifact} holds no integer level", hint="compile it with --emit integer")
    known[path.name].check(path)
    return trace(path).program


def _made(program: Program, limit: float) -> Iterator[Vectors]:
    """Each unit with its arrays, or with the reason why it is left out; the same on every run."""
    found = units(program)
    recorded = _recorded(program, found)
    for number, unit in enumerate(found):
        facts = {"name": unit.name, "op": unit.op}
        try:
            made = as_program(program, unit)
            steps = steps_of(made)
        except ValueError as reason:
            yield {**facts, "reason": str(reason)}, {}
            continue
        sizes = sum(recorded[v].nbytes for v in (*unit.inputs, unit.result)) / (1 << 20)
        if sizes > limit:
            yield {**facts, "reason": f"{sizes:.3g} MiB a case, more than --limit {limit:g}"}, {}
            continue
        yield _cases(f"{number:04d}", facts | steps, made, [recorded[v] for v in unit.inputs])


def _recorded(program: Program, found: list[Unit]) -> dict[Any, np.ndarray]:
    """The values that every unit reads and gives in a run of the program on random inputs."""
    values = [unit.result for unit in found]
    # Rounded up, a number of a few bits to a byte; all of them are held at once.
    held = sum(math.prod(shape_of(v)) * dtype_of(v).itemsize for v in values)
    require_memory(held, "the values of the integer program")
    run, inputs = computing(program, [v.owner for v in values]), random_inputs(program.inputs)
    known = dict(zip(values, run(*inputs), strict=True))
    return known | dict(zip(program.body.arguments, inputs, strict=False))


def _cases(folder: str, row: dict[str, Any], made: Program, recorded: list[np.ndarray]) -> Vectors:
    run, arrays = XlaExecutable(made, strict=True), dict[str, np.ndarray]()
    row["parameters"] = []
    for i, (name, array) in enumerate(made.weights.items()):
        file = f"{folder}/parameter{i}.npy"
        arrays[file] = np.asarray(array)
        row["parameters"].append({"name": name, "file": file, "type": str(arrays[file].dtype)})
    row["cases"] = []
    for kind, inputs in _inputs(recorded).items():
        files = [f"{folder}/{kind}_in{i}.npy" for i in range(len(inputs))]
        output = f"{folder}/{kind}_out.npy"
        arrays |= dict(zip(files, inputs, strict=True))
        arrays[output] = run(*inputs)[0]
        row["cases"].append({"kind": kind, "inputs": files, "output": output})
    return row, arrays


def _inputs(recorded: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Inputs by case: ends of the types, and random codes over all of them."""
    rng = np.random.default_rng(0)

    def of(x: np.ndarray, kind: str) -> np.ndarray:
        if x.dtype.kind == "f":  # far beyond any range, so that what quantizes saturates
            ends = {"low": np.full_like(x, -1e6), "high": np.full_like(x, 1e6)}
            return ends.get(kind, (4 * rng.standard_normal(x.shape)).astype(x.dtype))
        if x.dtype.kind not in "iu" or x.dtype.itemsize > 2:
            return x
        info = np.iinfo(x.dtype)
        ends = {"low": np.full_like(x, info.min), "high": np.full_like(x, info.max)}
        whole = rng.integers(info.min, info.max, x.shape, dtype=x.dtype, endpoint=True)
        return ends.get(kind, whole)

    cases = {kind: [of(x, kind) for x in recorded] for kind in ("low", "high", "random")}
    return {"recorded": recorded, **cases}
