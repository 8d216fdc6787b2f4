"""Compiles a module with many kernels at once and runs each as a function of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import iree.runtime as rt
import numpy as np
from iree.compiler import ir
from iree.compiler.tools.binaries import find_tool

from jq.kernels import Kernel, link

HOST = ("--iree-llvmcpu-target-cpu=host",)


def module_text(kernels: Sequence[Kernel], wrap: str = "call") -> str:
    """`@f0`, `@f1`, ...: one public function a kernel, each calling its declaration."""
    lines = []
    for i, kernel in enumerate(kernels):
        ins, outs = [str(t) for t in kernel.operands], [str(t) for t in kernel.results]
        names = [f"%a{j}" for j in range(len(ins))]
        arguments = ", ".join(f"{a}: {t}" for a, t in zip(names, ins, strict=True))
        json = kernel.to_json().replace("\\", "\\\\").replace('"', '\\"')
        results = ", ".join(
            f"%r#{j}" if len(outs) > 1 else "%r" for j in range(len(outs))
        )
        count = f":{len(outs)}" if len(outs) > 1 else ""
        lines += [
            f"func.func private @k{i}({', '.join(ins)}) -> ({', '.join(outs)}) "
            f'attributes {{jq.kernel = "{json}"}}',
            f"func.func public @f{i}({arguments}) -> ({', '.join(outs)}) {{",
            f"  %r{count} = func.call @k{i}({', '.join(names)}) : ({', '.join(ins)}) -> ({', '.join(outs)})",
            f"  return {results} : {', '.join(outs)}",
            "}",
        ]
    return "\n".join(lines)


def linked(kernels: Sequence[Kernel]) -> str:
    """The text of the module with every kernel's body in place."""
    with ir.Context():
        module = ir.Module.parse(module_text(kernels))
        link(module)
        module.operation.verify()
        return str(module)


def compile_text(text: str, flags: Sequence[str] = HOST) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "m.mlir"), Path(folder, "m.vmfb")
        source.write_text(text)
        done = subprocess.run(
            [
                find_tool("iree-compile"),
                str(source),
                "-o",
                str(target),
                "--iree-hal-target-device=local",
                "--iree-hal-local-target-device-backends=llvm-cpu",
                *flags,
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[:2000]
        return target.read_bytes()


class Runner:
    """The compiled kernels; `run(i, *operands)` calls the i-th."""

    def __init__(self, kernels: Sequence[Kernel], flags: Sequence[str] = HOST) -> None:
        data = compile_text(linked(kernels), flags)
        config = rt.Config("local-sync")
        context = rt.SystemContext(config=config)
        context.add_vm_module(rt.VmModule.copy_buffer(config.vm_instance, data))
        self.module = context.modules.module

    def run(self, i: int, *operands: np.ndarray) -> list[np.ndarray]:
        results = self.module[f"f{i}"](*operands)
        results = results if isinstance(results, (tuple, list)) else [results]
        return [np.array(r.to_host()) for r in results]
