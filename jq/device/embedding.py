"""An integer program as a C program: IREE's C and object, with a `main` and a CMake file."""

import math
import re
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import as_path
from jq.base.system.folders import new_folder
from jq.device.golden import integer_level
from jq.driver.compiled import CompiledModel
from jq.driver.loading import folder_of
from jq.ir import TensorSpec
from jq.iree.static_library import compile_static

SOURCES = Path(__file__).parent / "program"
HOST = "x86_64-unknown-linux-gnu"
WRITTEN = ("main.c", "CMakeLists.txt")  # the same for every program
TYPES = {"b": "BOOL", "f": "FLOAT", "i": "SINT", "u": "UINT"}


def embed(
    artifact: CompiledModel | str | Path,
    output: str | Path,
    *,
    triple: str = HOST,
    iree_flags: Sequence[str] = (),
) -> dict[str, Any]:
    """Writes a C program of an artifact's integer level, to be linked with IREE's runtime sources.

    Args:
        artifact: compiled with `--emit integer`.
        output: a new folder.
        triple: LLVM's, of the processor that it is for.
        iree_flags: more flags of IREE's compiler, such as the processor's name.

    Returns:
        `{"path", "triple", "files": [{"name", "bytes"}]}`.

    Raises:
        UserError: the folder exists, there is no integer level, or a type has no name in C there.

    Example:
        ```python
        jq.compile(model, "int8-static", emit=["integer"]).save("with-integer/")
        jq.embed("with-integer/", "program/")  # main.c, CMakeLists.txt and what they need
        ```"""
    source = folder_of(artifact)
    with new_folder(as_path(output)) as folder:
        files = _write(source, folder, triple, iree_flags)
    return {"path": str(output), "triple": triple, "files": files}


def _write(
    source: Path, folder: Path, triple: str, iree_flags: Sequence[str]
) -> list[dict[str, Any]]:
    program = integer_level(source)
    rows = [_rows(specs) for specs in (program.inputs, program.outputs)]
    made = compile_static((source / "integer.mlirbc").read_bytes(), triple, iree_flags)
    names = {
        "query": re.findall(r"(\w+_library_query)\(", made["library.h"].decode())[0],
        "create": re.findall(r"iree_status_t (\w+_create)\(", made["module.c"].decode())[0],
    }
    ranks = [len(s.shape) for s in (*program.inputs, *program.outputs)]
    form = (SOURCES / "program.h.in").read_text(encoding="utf-8")
    header = form.format(
        version=version("iree-base-compiler"),
        **names,
        entry=f"{names['create'].removesuffix('_create')}.main",
        inputs=len(program.inputs),
        outputs=len(program.outputs),
        rank=max([1, *ranks]),
        input_rows=rows[0],
        output_rows=rows[1],
    )
    for name, content in {**made, "program.h": header.encode()}.items():
        (folder / name).write_bytes(content)
    for name in WRITTEN:
        shutil.copy(SOURCES / name, folder / name)
    return [{"name": p.name, "bytes": p.stat().st_size} for p in sorted(folder.iterdir())]


def _rows(specs: Sequence[TensorSpec]) -> str:
    # Of a name that a model or a file gave nothing is C: no end of a line, no backslash.
    names = (re.sub(r"[^\w./\[\] -]", "_", spec.name, flags=re.ASCII) for spec in specs)
    return "\n".join(f"  {_row(s)},  // {name}" for s, name in zip(specs, names, strict=True))


def _row(spec: TensorSpec) -> str:
    dtype = np.dtype(spec.dtype) if hasattr(np, spec.dtype) else None
    if dtype is None or dtype.kind not in TYPES:
        raise UserError(f"the C program has no inputs or outputs of {spec.dtype}", op=spec.name)
    name, size = f"{TYPES[dtype.kind]}_{8 * dtype.itemsize}", math.prod(spec.shape) * dtype.itemsize
    shape = ", ".join(map(str, spec.shape)) or "0"
    return f"{{IREE_HAL_ELEMENT_TYPE_{name}, {size}, {len(spec.shape)}, {{{shape}}}}}"
