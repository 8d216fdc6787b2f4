"""Compiles a module with many kernels at once and runs each as a function of its own."""

from __future__ import annotations

from collections.abc import Sequence

import iree.runtime as rt
import numpy as np
from iree.compiler import ir

from jq.base.system.processor import permit_tiles
from jq.iree.compiler import HOST_FLAGS, compile_module
from jq.kernels import Kernel
from jq.kernels.emit.dispatches import link
from tests.kernels import emulated


def module_text(kernels: Sequence[Kernel]) -> str:
    """`@f0`, `@f1`, ...: one public function a kernel, each calling its declaration."""
    lines = []
    for i, kernel in enumerate(kernels):
        ins, outs = [str(t) for t in kernel.operands], [str(t) for t in kernel.results]
        names = ", ".join(f"%a{j}" for j in range(len(ins)))
        arguments = ", ".join(f"%a{j}: {t}" for j, t in enumerate(ins))
        json = kernel.to_json().replace("\\", "\\\\").replace('"', '\\"')
        results = ", ".join(f"%r#{j}" for j in range(len(outs)))
        kind = line_type(ins, outs)
        lines += [
            f'func.func private @k{i}{kind} attributes {{jq.kernel = "{json}"}}',
            f"func.func public @f{i}({arguments}) -> ({', '.join(outs)}) {{",
            f"  %r:{len(outs)} = func.call @k{i}({names}) : {kind}",
            f"  return {results} : {', '.join(outs)}",
            "}",
        ]
    return "\n".join(lines)


def storage_text(kernels: Sequence[Kernel]) -> str:
    """As `module_text`, on buffers that the caller owns: operands, and after them results."""
    lines, declarations = [], module_text(kernels).splitlines()[::5]
    for i, (declaration, kernel) in enumerate(zip(declarations, kernels, strict=True)):
        ins, outs = list(map(str, kernel.operands)), list(map(str, kernel.results))
        arguments = ", ".join(f"%a{j}: !hal.buffer" for j in range(len(ins) + len(outs)))
        views = ", ".join(["!hal.buffer_view"] * len(outs))
        names = ", ".join(f"%t{j}" for j in range(len(ins)))
        lines += [declaration, f"func.func public @f{i}({arguments}) -> ({views}) {{"]
        for j, t in enumerate(ins):
            lines.append(f"  %t{j} = hal.tensor.import %a{j} : !hal.buffer -> {t}")
        lines.append(f"  %r:{len(outs)} = func.call @k{i}({names}) : {line_type(ins, outs)}")
        for j, t in enumerate(outs):
            to = f"%a{len(ins) + j} : !hal.buffer"
            lines.append(f"  %s{j} = hal.tensor.alias %r#{j} : {t} to {to}")
            lines.append(f"  %v{j} = hal.tensor.export %s{j} : {t} -> !hal.buffer_view")
        lines += [f"  return {', '.join(f'%v{j}' for j in range(len(outs)))} : {views}", "}"]
    return "\n".join(lines)


def line_type(ins: Sequence[str], outs: Sequence[str]) -> str:
    return f"({', '.join(ins)}) -> ({', '.join(outs)})"


def linked(kernels: Sequence[Kernel], storage: bool = False) -> str:
    """The text of the module with every kernel's body in place."""
    with ir.Context():
        module = ir.Module.parse(storage_text(kernels) if storage else module_text(kernels))
        link(module)
        module.operation.verify()
        return str(module)


FLAGS = emulated.FLAGS if emulated.COMMAND else HOST_FLAGS


def compile_text(text: str, flags: Sequence[str] = FLAGS) -> bytes:
    return compile_module(text.encode(), flags=flags, timeout=600).vmfb


class Runner:
    """The compiled kernels; `run(i, *operands)` calls the i-th."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.emulated: emulated.Emulated | None = None
        data = compile_text(linked(kernels))
        if emulated.COMMAND:
            self.data, self.emulated = data, emulated.Emulated(data, len(kernels))
        else:
            self.load(data, "local-sync")

    def load(self, data: bytes, driver: str) -> None:
        self.data = data
        if self.emulated:
            return  # on one thread
        permit_tiles()
        config = rt.Config(driver)
        context = rt.SystemContext(config=config)
        context.add_vm_module(rt.VmModule.copy_buffer(config.vm_instance, data))
        self.module = context.modules.module

    def run(self, i: int, *operands: np.ndarray) -> list[np.ndarray]:
        if self.emulated:
            return self.emulated.run(f"f{i}", operands)
        results = self.module[f"f{i}"](*operands)
        results = results if isinstance(results, (tuple, list)) else [results]
        return [np.array(r.to_host()) for r in results]
