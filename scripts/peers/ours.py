"""This compiler's programs, and float programs of IREE and XLA without it."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from iree.compiler.tools.binaries import find_tool

import jq
from jq import api
from jq.iree.compiler import HOST_FLAGS
from peers.case import (
    BFLOAT16,
    DYNAMIC,
    FEWER,
    FLOAT,
    STATIC,
    WEIGHTS4,
    WEIGHTS8,
    Case,
    Contender,
    Source,
)

# Kinds of the pipelines; a pipeline of another name is compared with static peers.
KINDS = {
    "float": FLOAT,
    "bf16": BFLOAT16,
    "int8-dynamic": DYNAMIC,
    "int8-static": STATIC,
    "int8-weight-only": WEIGHTS8,
    "fp8-weight-only": WEIGHTS8,
    "mxfp8-weight-only": WEIGHTS8,
    "mxint8-weight-only": WEIGHTS8,
    "int4-weight-only": WEIGHTS4,
    "int4-dynamic": WEIGHTS4,
    "mxfp4-weight-only": WEIGHTS4,
    "nvfp4-weight-only": WEIGHTS4,
    "int3-weight-only": FEWER,
    "int2-weight-only": FEWER,
}
# Without the limit IREE refuses norms and reductions of real models.
PLAIN_FLAGS = ("--iree-input-type=auto", "--iree-llvmcpu-stack-allocation-limit=262144")
PLAIN = {"": (), ", O3 and data tiling": ("--iree-opt-level=O3", "--iree-opt-data-tiling")}


def contenders(case: Case) -> list[Contender]:
    found = [_pipeline(name) for name in case.pipelines]
    if case.family == "product":
        return found
    return [*found, *map(_plain, PLAIN), _xla()]


def _pipeline(name: str) -> Contender:
    """`int8-static`, or with settings: `int8-static calibration.method=mse`."""
    pipeline, *settings = name.split()

    def build(source: Source, folder: Path) -> str:
        compiled = api.compile(source.model, pipeline, settings=settings)
        compiled.save(folder / "artifact")
        return "artifact"

    return Contender(
        name=f"jaxq {name}",
        runtime="iree",
        kind=WEIGHTS8 if "weights.format=q8_0" in settings else KINDS.get(pipeline, STATIC),
        program=f"jaxq {name}",
        build=build,
        versions={"jq": _digest()},
        ours=True,
    )


def _plain(name: str) -> Contender:
    def build(source: Source, folder: Path) -> str:
        (folder / "module.mlirbc").write_bytes(_exported(source).mlir_module_serialized)
        command = [find_tool("iree-compile"), "module.mlirbc", "-o", "module.vmfb"]
        flags = [*PLAIN_FLAGS, *HOST_FLAGS, *PLAIN[name]]
        subprocess.run([*command, *flags], cwd=folder, check=True, capture_output=True)
        (folder / "module.mlirbc").unlink()
        return "module.vmfb"

    versions = {"iree": version("iree-base-compiler"), "jax": version("jax")}
    title = f"IREE float32{name}"
    return Contender(title, "iree", FLOAT, title, build, versions)


def _xla() -> Contender:
    def build(source: Source, folder: Path) -> str:
        (folder / "function.jaxexport").write_bytes(_exported(source).serialize())
        return "function.jaxexport"

    title = "XLA float32"
    return Contender(title, "xla", FLOAT, title, build, {"jax": version("jax")})


def _exported(source: Source) -> Any:
    """The model with its parameters as constants."""
    params = jax.tree.map(jax.numpy.asarray, source.model.params)
    function = jax.jit(lambda *inputs: source.model.fn(params, *inputs))
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in source.evaluation[0]]
    return jax.export.export(function)(*specs)


@cache
def _digest() -> str:
    """Digest of this compiler's sources: another state of them makes other programs."""
    root = Path(jq.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.parent.glob("*/*.toml")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
