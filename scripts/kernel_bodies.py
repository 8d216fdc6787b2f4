#!/usr/bin/env python3
"""Compares the bodies that kernels emit now with those of another commit.

    python scripts/kernel_bodies.py f2baea7                 # its bodies, and those of this tree
    python scripts/kernel_bodies.py f2baea7 --draws here    # of kernels that this tree's tests draw
    python scripts/kernel_bodies.py f2baea7 --count 600

Both trees emit the same kernels, which the tests of one of them give (those of the commit, unless
`--draws here`): one of every family for each instruction set, and drawn ones, the same on every
run, each for every instruction set that takes it. It exits with 1 and names what differs. A commit
whose code has other names for kernels than the tests cannot be compared; the error says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from iree.compiler import ir
from iree.compiler.passmanager import PassManager

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jq.base.errors import InternalError
from jq.kernels import ISAS, Kernel
from tests.kernels.harness import linked
from tests.kernels.test_guard import drawn
from tests.kernels.test_isa import every_family

HERE = Path(__file__).resolve().parent.parent
CHILD = "-"  # in the place of a commit: what this process emits
SETS = ("amx_int8", "avx512_bf16", "avx2", "sse2", "aarch64_i8mm", "portable")


def examples(count: int) -> list[Kernel]:
    found: list[Kernel] = [kernel for isa in ISAS for kernel in every_family(isa)]

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn())
    def collect(kernel: Kernel) -> None:
        found.extend(other for isa in SETS if (other := on(kernel, isa)) is not None)

    collect()
    return list(dict.fromkeys(found))


def on(kernel: Kernel, isa: str) -> Kernel | None:
    """The kernel for another instruction set; None where that has none of its shape."""
    try:
        return replace(kernel, isa=isa)
    except InternalError:
        return None


def digests(count: int) -> list[tuple[str, str]]:
    """Digests of the operands' types, the results' and the body, after the description."""
    return [(kernel.to_json(), _digest_of(kernel)) for kernel in examples(count)]


def _digest_of(kernel: Kernel) -> str:
    try:
        return digest(linked([kernel]))
    except InternalError as error:
        return f"refused: {error}"


def digest(text: str) -> str:
    """Digest of a module whose equal operations are one, as after the compiler's first pass."""
    with ir.Context():
        module = ir.Module.parse(text)
        PassManager.parse("builtin.module(cse)").run(module.operation)
        return hashlib.sha256(str(module).encode()).hexdigest()[:16]


def emitted(code: Path, tests: Path, count: int) -> list[list[str]]:
    """Kernels as the code of one tree emits them, of those that the tests of one draw."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "jq").symlink_to(code / "jq")
        (root / "tests").symlink_to(tests / "tests")
        (root / "scripts").mkdir()
        script = shutil.copy(__file__, root / "scripts")
        run = [sys.executable, script, CHILD, "--count", str(count)]
        made = subprocess.run(run, cwd=root, capture_output=True, text=True, check=False)
        if made.returncode:
            sys.exit(f"the code of {code} with the tests of {tests}:\n{made.stderr[-2000:]}")
        found: list[list[str]] = json.loads(made.stdout.splitlines()[-1])
        return found


def compare(commit: str, draws: str, count: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        other = Path(name)
        archive = ["git", "archive", commit, "jq", "tests"]
        packed = subprocess.run(archive, cwd=HERE, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", other], input=packed, check=True)
        tests = HERE if draws == "here" else other
        before, now = (emitted(code, tests, count) for code in (other, HERE))
    pairs = list(zip(before, now, strict=False))
    changed = [b[0] for a, b in pairs if a[1] != b[1]]
    for kernel in changed:
        print(f"another body: {kernel}")
    missing = abs(len(before) - len(now))
    print(f"{len(pairs)} bodies, of {commit} and of this tree: {len(changed)} differ")
    if missing:
        print(f"{missing} more kernels in one tree: the draws are others")
    return int(bool(changed or missing))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="the one to compare with")
    parser.add_argument("--draws", choices=("there", "here"), default="there", help="whose tests")
    parser.add_argument("--count", type=int, default=150, help="kernels that are drawn")
    asked = parser.parse_args()
    if asked.commit == CHILD:
        print(json.dumps(digests(asked.count)))
    else:
        sys.exit(compare(asked.commit, asked.draws, asked.count))
