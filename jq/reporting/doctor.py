"""Report on this machine: what it has, and whether integer results are right on it."""

import os
import platform
import re
import resource
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.keys import version_of
from jq.base import JqError, Progress, silent
from jq.base.system.folders import cache_root, data_names
from jq.base.system.processor import Processor, physical_bytes, this_processor
from jq.iree.compiler import compile_module
from jq.iree.devices import drivers
from jq.iree.runtime import Executable
from jq.kernels import available, get_isa
from jq.target.target import Target, load_target

PACKAGES = (
    *("jaxq", "jax", "jaxlib", "iree-base-compiler", "iree-base-runtime"),
    *("numpy", "ml-dtypes"),
)
# Instructions that int8 and bf16 products can use, as the kernel names them.
FEATURES = {
    *("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimddp", "i8mm", "bf16", "sve", "sve2"),
}
# Rows, columns and depth: one row, a full tile, and nothing that divides evenly.
SHAPES = ((1, 64, 64), (128, 128, 256), (37, 29, 131))
VARIABLES = ("JAX", "XLA", "IREE", "TF_CPP", "OMP_", "GLIBC_TUNABLES", "LD_PRELOAD", "TMPDIR")
SECRET = re.compile("PASSWORD|TOKEN|KEY|SECRET")
# What users meet in JAX itself: the package, its first version without the fault, what is wrong,
# and what is done about it. Those of IREE are in docs/internals/iree.md.
KNOWN = (
    (
        *("jaxlib", (0, 11)),
        "its fused sums on a CPU are wrong after products, and crash at seven axes (jax-ml/jax"
        " 39103, 39257, 40412); JAX itself computes so, with the options it has by default",
        "the float reference is compiled without these kernels; Python 3.12 gets a newer jaxlib",
    ),
    (
        *("jaxlib", (0, 13)),
        "what is written into a tensor that it is read from may be wrong (openxla/xla 49176)",
        "the float reference of such a program is compiled without fusions",
    ),
)


@dataclass(frozen=True)
class Check:
    """One test of the self-test; `reason` says how it failed."""

    target: str
    passed: bool
    reason: str = ""


def examine(progress: Progress = silent) -> dict[str, Any]:
    """Versions, CPU, drivers and the results of the self-test, as a document."""
    checks, same = [], dict[tuple[str, ...], Check]()  # by flags: what is compiled alike
    for name in data_names("targets"):
        target = load_target(name)
        if not target.members and runs_here(target):  # members are targets of their own
            progress(f"self-test of {name}", None)
            found = same.get(target.flags) or check(target)
            same[target.flags] = found
            checks.append(replace(found, target=name))
    return {
        "versions": versions(),
        "known_defects": known_defects(versions()),
        "cpu": describe(this_processor()),
        "system": system(),
        "environment": environment(),
        "drivers": drivers(),
        "self_test": [asdict(each) for each in checks],
        "ok": all(each.passed for each in checks),
    }


def versions() -> dict[str, str]:
    """Version of Python and of every package that results depend on."""
    found = {name: version_of(name, "not installed") for name in PACKAGES}
    return {"python": platform.python_version(), **found}


def known_defects(installed: Mapping[str, str]) -> list[dict[str, str]]:
    """Known faults of these versions: `version`, `wrong` and `remedy` of each."""
    return [
        {"version": f"{package} {installed[package]}", "wrong": wrong, "remedy": remedy}
        for package, mended, wrong, remedy in KNOWN
        if (found := re.match(r"(\d+)\.(\d+)", installed[package]))
        and (int(found[1]), int(found[2])) < mended
    ]


def system() -> dict[str, Any]:
    """Operating system, C library, memory, and the folders that are written to: how much is free
    there, None where they cannot be written."""
    cache, (limit, _) = cache_root(), resource.getrlimit(resource.RLIMIT_AS)
    return {
        "system": platform.platform(),
        "c_library": " ".join(platform.libc_ver()).strip(),
        "memory_bytes": physical_bytes(),
        "memory_limit_bytes": None if limit == resource.RLIM_INFINITY else limit,
        "temporary_folder": tempfile.gettempdir(),
        "temporary_free_bytes": _free(Path(tempfile.gettempdir())),
        "cache_folder": str(cache),
        "cache_free_bytes": _free(cache),
    }


def _free(folder: Path) -> int | None:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free if os.access(there, os.W_OK | os.X_OK) else None


def environment() -> dict[str, str]:
    """The variables that change what we or the libraries do; never one that may be a secret."""
    shown = {k: v for k, v in os.environ.items() if k.startswith(VARIABLES)}
    return {k: v for k, v in sorted(shown.items()) if not SECRET.search(k)}


def describe(processor: Processor) -> dict[str, Any]:
    """Model, the features that decide speed, and the number of threads this process may use."""
    return {
        "model": processor.model or platform.processor() or "unknown",
        "architecture": processor.machine,
        "features": sorted(FEATURES & processor.flags),
        "threads": len(os.sched_getaffinity(0)),
    }


def runs_here(target: Target) -> bool:
    """True if what is compiled for a target can be run on this machine."""
    triples = [flag.partition("=")[2] for flag in target.flags if "target-triple=" in flag]
    here = this_processor().machine
    native = all(triple.startswith(f"{here}-") for triple in triples)
    runs = target.kernels in ("none", "host") or get_isa(target.kernels) in available()
    return native and runs and target.driver in drivers()


def check(target: Target) -> Check:
    """i8 x i8 -> i32 products over the whole range of i8, against NumPy: equal in every bit."""
    rng = np.random.default_rng(0)
    try:
        for m, n, k in SHAPES:
            lhs, rhs = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
            program = compile_module(product(m, n, k).encode(), flags=target.flags)
            (result,) = Executable.load(program.vmfb, driver=target.driver)(lhs, rhs)
            wrong = int((result != lhs.astype(np.int32) @ rhs.astype(np.int32)).sum())
            if wrong:
                return Check(target.name, False, f"{wrong} of {m}x{n} sums over {k} are wrong")
    except JqError as error:
        return Check(target.name, False, str(error))
    return Check(target.name, True)


def product(m: int, n: int, k: int) -> str:
    """StableHLO text of an [m, k] x [k, n] integer product."""
    types = f"(tensor<{m}x{k}xi8>, tensor<{k}x{n}xi8>) -> tensor<{m}x{n}xi32>"
    return f"""
func.func public @main(%lhs: tensor<{m}x{k}xi8>, %rhs: tensor<{k}x{n}xi8>) -> tensor<{m}x{n}xi32> {{
  %0 = stablehlo.dot_general %lhs, %rhs, contracting_dims = [1] x [0] : {types}
  return %0 : tensor<{m}x{n}xi32>
}}"""
