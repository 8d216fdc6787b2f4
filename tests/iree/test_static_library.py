"""The emitted integer program as a C file and an object for three architectures."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from iree.compiler.tools.binaries import find_tool

import jq
from jq.base.errors import UserError
from jq.iree.static_library import compile_static

MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}  # ELF's e_machine
GLOBAL, UNDEFINED = 1, 0


@pytest.fixture(scope="module")
def integer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((16, 8)).astype(np.float32)
    x = rng.standard_normal((2, 16)).astype(np.float32)
    model = jq.Model(lambda p, x: x @ p["w"], {"w": weight}, (x,), calibration=[(x,)])
    found = jq.rewrite(model, pipeline="int8-static-integer-only", target="npu-int8")["integer"]
    path = tmp_path_factory.mktemp("emit") / "integer.mlirbc"
    with path.open("wb") as file:
        found.materialize().operation.write_bytecode(file)
    return path


def symbols(elf: bytes) -> dict[str, bool]:
    """The global symbols of a 64-bit object: whether it defines them."""
    at, count = struct.unpack_from("<Q", elf, 0x28)[0], struct.unpack_from("<H", elf, 0x3C)[0]
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, at + 64 * i) for i in range(count)]
    table = next(h for h in headers if h[1] == 2)
    names = headers[table[6]][4]
    found = {}
    for i in range(table[5] // 24):
        name, info, _, section = struct.unpack_from("<IBBH", elf, table[4] + 24 * i)
        if info >> 4 == GLOBAL:
            end = elf.index(b"\0", names + name)
            found[elf[names + name : end].decode()] = section != UNDEFINED
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_objects(integer: Path, tmp_path: Path, machine: str) -> None:
    flags = "--iree-input-type=stablehlo --iree-hal-target-device=local"
    flags += " --iree-hal-local-target-device-backends=llvm-cpu --iree-llvmcpu-target-cpu=generic"
    flags += " --iree-llvmcpu-link-embedded=false --iree-llvmcpu-link-static"
    flags += f" --iree-llvmcpu-target-triple={machine}-unknown-linux-gnu --output-format=vm-c"
    if machine == "riscv64":  # the least that a `generic` one has knows no floats
        flags += " --iree-llvmcpu-target-cpu-features=+m,+a,+f,+d,+c"
        flags += " --iree-llvmcpu-target-abi=lp64d"
    library = f"--iree-llvmcpu-static-library-output-path={tmp_path / 'library.o'}"
    command = [find_tool("iree-compile"), str(integer), *flags.split(), library]
    subprocess.run([*command, "-o", str(tmp_path / "module.c")], check=True, timeout=300)
    elf = (tmp_path / "library.o").read_bytes()
    assert elf[:5] == b"\x7fELF\2"
    assert struct.unpack_from("<H", elf, 18)[0] == MACHINES[machine]
    found = symbols(elf)
    made = [name for name, defined in found.items() if defined]
    assert len(made) == 1 and made[0].endswith("_library_query")
    assert set(found) - set(made) <= {"roundf", "rintf", "roundevenf", "fmaf"}
    assert made[0] in (tmp_path / "library.h").read_text()
    assert re.search(r"iree_status_t \w+_create\(", (tmp_path / "module.c").read_text())


def test_a_processor_that_llvm_does_not_know(integer: Path) -> None:
    with pytest.raises(UserError, match="knows no processor 'foo'"):
        compile_static(integer.read_bytes(), "foo")
