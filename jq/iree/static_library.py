"""IREE's compiler as the maker of a C program: the calls as C, the arithmetic as an object."""

from collections.abc import Sequence

from iree.compiler.tools.binaries import find_tool

from jq.base.guard.limits import limits
from jq.base.system.temporary import temporary_folder
from jq.iree.compiler import _failure, _run
from jq.target.compiler_flags import combined

FILES = ("module.c", "library.h", "library.o")
FLAGS = (
    "--iree-input-type=stablehlo",
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=generic",
    "--iree-llvmcpu-link-embedded=false",
    "--iree-llvmcpu-link-static",
    "--iree-llvmcpu-static-library-output-path=library.o",
    "--output-format=vm-c",
)
# A `generic` processor of these has no floating point, or addresses of 32 bits.
OF_ARCHITECTURE = {
    "riscv64": (
        "--iree-llvmcpu-target-cpu-features=+m,+a,+f,+d,+c",
        "--iree-llvmcpu-target-abi=lp64d",
    ),
    "thumbv7em": (
        "--iree-llvmcpu-target-cpu=cortex-m7",
        "--iree-llvmcpu-target-cpu-features=+fp-armv8d16",
        "--iree-llvmcpu-target-float-abi=hard",
        "--iree-vm-target-index-bits=32",
    ),
}


def compile_static(source: bytes, triple: str, flags: Sequence[str] = ()) -> dict[str, bytes]:
    """The contents of `FILES` for an MLIR module without ops of ours.

    Args:
        triple: LLVM's, such as `riscv64-unknown-linux-gnu`.
        flags: more of the compiler's; they take the place of ours.

    Raises:
        UserError, CompilerError: as `jq.iree.compiler.compile_module`."""
    own = OF_ARCHITECTURE.get(triple.partition("-")[0], ())
    given = combined((*FLAGS, f"--iree-llvmcpu-target-triple={triple}"), own)
    with temporary_folder() as work:
        (work / "module.mlirbc").write_bytes(source)
        command = [find_tool("iree-compile"), "module.mlirbc", "-o", "module.c"]
        command += combined(given, flags)
        timeout = limits().compiling()[0]
        code, log = _run(command, work, timeout)
        if code != 0:
            raise _failure(code, log, command, source, timeout)
        return {name: (work / name).read_bytes() for name in FILES}
