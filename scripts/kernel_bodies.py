#!/usr/bin/env python3
"""Digests of the bodies that kernels emit, to see that a change of `jq/kernels` changes none.

    python scripts/kernel_bodies.py before.json        # of the examples, for every instruction set
    python scripts/kernel_bodies.py before.json        # again: exits 1 and names what differs

Examples are those of the tests: one of every family for each instruction set, and drawn ones, the
same on every run, each for every instruction set that takes it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from iree.compiler import ir
from iree.compiler.passmanager import PassManager

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jq.errors import InternalError
from jq.kernels import ISAS, GemmRows, Kernel
from tests.kernels.harness import linked
from tests.kernels.test_gemm_rows import kernels as gemm_rows
from tests.kernels.test_guard import drawn
from tests.kernels.test_isa import every_family

DRAWN, SETS = 150, ("amx_int8", "avx512_bf16", "avx2", "sse2", "aarch64_i8mm", "portable")


def examples() -> list[Kernel]:
    found: list[Kernel] = [kernel for isa in ISAS for kernel in every_family(isa)]

    @settings(
        max_examples=DRAWN,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(drawn(), drawn(), drawn(), gemm_rows()))
    def collect(kernel: Kernel) -> None:
        found.extend(other for isa in SETS if (other := on(kernel, isa)) is not None)

    collect()
    return list(dict.fromkeys(found))


def on(kernel: Kernel, isa: str) -> Kernel | None:
    """The kernel for another instruction set; None where that has none of its shape."""
    try:
        if isinstance(kernel, GemmRows):
            inner = {name: getattr(kernel, name) for name in ("gemm", "normalize", "quantize")}
            moved = {name: replace(k, isa=isa) for name, k in inner.items() if k is not None}
            return replace(kernel, isa=isa, **moved)
        return replace(kernel, isa=isa)
    except InternalError:
        return None


def digests() -> dict[str, str]:
    """Of the operands' types, the results' and the body, by the description."""
    return {kernel.to_json(): digest(linked([kernel])) for kernel in examples()}


def digest(text: str) -> str:
    """Of a module whose equal operations are one, as the compiler's first pass makes them."""
    with ir.Context():
        module = ir.Module.parse(text)
        PassManager.parse("builtin.module(cse)").run(module.operation)
        return hashlib.sha256(str(module).encode()).hexdigest()[:16]


def main(path: Path) -> int:
    now = digests()
    if not path.exists():
        path.write_text(json.dumps(now, indent=1))
        print(f"{len(now)} bodies written to {path}")
        return 0
    before = json.loads(path.read_text())
    changed = [name for name in now.keys() & before.keys() if now[name] != before[name]]
    missing = before.keys() ^ now.keys()
    for name in sorted(changed):
        print(f"another body: {name}")
    print(f"{len(now)} bodies: {len(changed)} changed, {len(missing)} in one run alone")
    return int(bool(changed or missing))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="digests: written where it is not there yet")
    sys.exit(main(parser.parse_args().file))
