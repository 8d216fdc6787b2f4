#!/usr/bin/env python3
"""Inner loops of products as llvm-mca models them, on processors that are not here.

    ./scripts/model_loops.py [--llvm-mca PATH] [--cpu NAME ...] [--json]

Compiles a `Gemm` and a 3x3 `Convolution` for each processor, takes from the assembly the loop with
the most products, and compares its cycles with those of as many product instructions alone on
registers, in the same model: 1.00 is a loop that costs nothing besides its products. Where sums of
pairs can be proven, a `PairGemm` is compared with the usual products that do as much.

llvm-mca of LLVM 16 or newer is needed (Debian: llvm-19). It models no caches and no fetch of code.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iree.compiler.tools.binaries import find_tool

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jq.iree.compiler import BASE_FLAGS, TEMPORARY
from jq.kernels import Bias, Convolution, Dequantize, Gemm, Kernel, PairGemm, Quantize, get_isa
from tests.kernels.harness import linked

# Processor by LLVM's name, and the instruction set that it runs.
PROCESSORS = {
    "haswell": "avx2",
    "znver2": "avx2",
    "znver3": "avx2",
    "skylake-avx512": "avx512",
    "alderlake": "avx_vnni",
    "znver4": "avx512_vnni",
    "neoverse-n1": "aarch64_dotprod",
    "neoverse-n2": "aarch64_i8mm",
    "neoverse-v2": "aarch64_i8mm",
}
NAMES = ("Gemm 128x384x1536", "Convolution 3x3, 14x14x256")  # of `kernels`, functions k0 and k1
PAIRS = "PairGemm 128x384x1536"  # and k2, where there are pairs
ITERATIONS, OLDEST = 200, 16
_PRODUCT = re.compile(r"^(?:\{\w+\} )?(vpdpbusd|vpmaddwd|vpmaddubsw|usdot|sudot|sdot)\b")
_COMMENT = re.compile(r"(?:^|\s+)(?:#+\s|#+$|//).*")
_LABEL = re.compile(r"^([.\w$]+):")
_BRANCH = re.compile(r"^(?:j\w+|b\.?\w*|cbn?z|tbn?z)\s.*?([.\w$]+)$")


@dataclass(frozen=True)
class Loop:
    """Attributes:
    kernel: which kernel's.
    body: its instructions.
    products: how many of them multiply.
    """

    kernel: str
    body: tuple[str, ...]

    @property
    def products(self) -> list[str]:
        return [line for line in self.body if _PRODUCT.match(line)]

    @property
    def work(self) -> int:
        """Usual products that do as much: one of bytes multiplies twice the codes."""
        pairs = sum(line.startswith("vpmaddubsw") for line in self.body)
        return 2 * pairs or len(self.products)


@dataclass(frozen=True)
class Row:
    """Attributes:
    products: in the loop, or as many as do its work.
    cycles: of a pass through the loop.
    alone: of its products alone.
    """

    cpu: str
    isa: str
    kernel: str
    products: int
    cycles: float
    alone: float

    @property
    def share(self) -> float:
        return self.alone / self.cycles


def kernels(isa: str) -> list[Kernel]:
    """Kernels of the size of a transformer and of a network's middle; codes as they are read."""
    unsigned = get_isa(isa).dot.lhs_unsigned
    image: dict[str, Any] = {
        "batch": 1,
        "height": 14,
        "width": 14,
        "window": (3, 3),
        "unsigned": unsigned,
    }
    shape: dict[str, Any] = {"m": 128, "k": 384, "n": 1536, "epilogue": (Dequantize(), Bias())}
    pairs = [PairGemm(isa=isa, chains=48, **shape)] if get_isa(isa).pairs else []
    return [
        Gemm(isa=isa, unsigned=unsigned, **shape),
        Convolution(
            isa=isa, filters=256, channels=256, epilogue=(Dequantize(), Quantize()), **image
        ),
        *pairs,
    ]


def assembly(
    isa: str, cpu: str, some: Sequence[Kernel] = (), more_flags: Sequence[str] = ()
) -> str:
    """Assembly for a processor of some kernels, or of `kernels`."""
    triple = f"{get_isa(isa).machine}-unknown-linux-gnu"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "m.mlir").write_text(linked(some or kernels(isa)))
        flags = [
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            f"--iree-llvmcpu-target-triple={triple}",
            f"--iree-llvmcpu-target-cpu={cpu}",
            "--iree-hal-dump-executable-intermediates-to=dump",
            *more_flags,
        ]
        command = [find_tool("iree-compile"), "m.mlir", "-o", "m.vmfb", *BASE_FLAGS, *flags]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, env=TEMPORARY)
        (text,) = (folder / "dump").glob("*.s")
        return text.read_text()


def innermost(text: str) -> Iterator[Loop]:
    """Loops without a label inside, in the order of the text, by the function that holds them."""
    function, start, body = "", "", list[str]()
    for raw in text.splitlines():
        line = _COMMENT.sub("", raw).replace("\t", " ").strip()
        if label := _LABEL.match(line):
            start, body = label[1], []
            function = function if start.startswith(".") else start
        elif line and not line.startswith("."):
            body.append(line)
            branch = _BRANCH.match(line)
            if branch and branch[1] == start:
                yield Loop(function, tuple(body))


def busiest(text: str) -> list[Loop]:
    """The loop with the most products of every function that has one; of loops that do as much the
    first: chains that are proven stand before those by pairs."""
    best: dict[str, Loop] = {}
    for loop in innermost(text):
        known = best.get(loop.kernel)
        if loop.products and (known is None or loop.work > known.work):
            best[loop.kernel] = loop
    return list(best.values())


def alone(isa: str, count: int) -> list[str]:
    """So many products on registers, as many chains as there are registers for."""
    found = get_isa(isa)
    if found.machine == "aarch64":
        name = "usdot" if "usdot" in found.dot.intrinsic else "sdot"
        return [f"{name} v{i % 24}.4s, v30.16b, v31.16b" for i in range(count)]
    register = "%zmm" if found.lanes == 16 else "%ymm"
    free = found.registers - 4
    if found.dot.accumulates:
        vex = "{vex} " if found.lanes == 8 else ""
        operands = f"{register}{free + 1}, {register}{free + 2}"
        return [f"{vex}vpdpbusd {operands}, {register}{i % free}" for i in range(count)]
    lines = []
    for i in range(count):
        to, own = f"{register}{free + 3}", f"{register}{i % free}"
        lines.append(f"vpmaddwd {register}{free + 1}, {register}{free + 2}, {to}")
        lines.append(f"vpaddd {to}, {own}, {own}")
    return lines


def cycles(mca: str, cpu: str, machine: str, body: list[str]) -> float:
    """Cycles of one pass, by llvm-mca."""
    command = [mca, f"-mtriple={machine}-unknown-linux-gnu", f"-mcpu={cpu}"]
    command += [f"-iterations={ITERATIONS}", "-resource-pressure=false", "-instruction-info=false"]
    text = "\n".join(body) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    assert total is not None
    return int(total[1]) / ITERATIONS


def rates(mca: str, cpu: str) -> dict[str, float]:
    """Products and loads a cycle, and cycles until an accumulator can be used again."""
    isa = get_isa(PROCESSORS[cpu])
    arm, many = isa.machine == "aarch64", 24
    register = "%zmm" if isa.lanes == 16 else "%ymm"
    loads = [
        f"ldr q{i}, [x0, #{16 * i}]" if arm else f"vmovups {64 * i}(%rdi), {register}{i}"
        for i in range(12)
    ]
    return {
        "dot_rate": many / cycles(mca, cpu, isa.machine, alone(isa.name, many)),
        "dot_latency": cycles(mca, cpu, isa.machine, alone(isa.name, 1)),
        "load_rate": len(loads) / cycles(mca, cpu, isa.machine, loads),
    }


def find_mca(path: str | None = None) -> str | None:
    """llvm-mca, new enough; None where there is none."""
    names = [path] if path else [*(f"llvm-mca-{n}" for n in range(25, OLDEST - 1, -1)), "llvm-mca"]
    for found in filter(None, map(shutil.which, names)):
        said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        version = re.search(r"LLVM version (\d+)", said)
        if version and int(version[1]) >= OLDEST:
            return found
    return None


def rows(mca: str, cpu: str) -> list[Row]:
    """Rows of one processor."""
    isa, found = PROCESSORS[cpu], []
    machine = get_isa(isa).machine
    for loop in busiest(assembly(isa, cpu)):
        count = loop.work
        took = cycles(mca, cpu, machine, list(loop.body))
        least = cycles(mca, cpu, machine, alone(isa, count))
        found.append(Row(cpu, isa, (*NAMES, PAIRS)[int(loop.kernel[1])], count, took, least))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llvm-mca", help="its path; else the newest that is found")
    parser.add_argument("--cpu", nargs="*", choices=PROCESSORS, default=list(PROCESSORS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    mca = find_mca(options.llvm_mca)
    if mca is None:
        print(f"skipped: there is no llvm-mca of LLVM {OLDEST} or newer", file=sys.stderr)
        return 0
    found = [row for cpu in options.cpu for row in rows(mca, cpu)]
    if options.json:
        print(json.dumps([asdict(row) | {"share": row.share} for row in found], indent=1))
        return 0
    print("| processor | instruction set | kernel | products | cycles | alone | share |")
    print("|---|---|---|---:|---:|---:|---:|")
    for row in found:
        print(
            f"| {row.cpu} | `{row.isa}` | {row.kernel} | {row.products} | {row.cycles:.1f} |"
            f" {row.alone:.1f} | {row.share:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
