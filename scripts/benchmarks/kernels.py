"""Times kernels by themselves on one core, best of many runs.

    python scripts/benchmark.py kernels [--isa NAME ...] [--family gemm ...] [--only TEXT] [--cold]
                                        [--json]
    python scripts/benchmark.py kernels --family tiles --write

Prints for every kernel its time, arithmetic and memory rates. Operands stay on the device; an
empty call of the runtime (about 2 microseconds) is part of every time. Kernels of a poorer
instruction set than this machine's best are compiled for a processor that has no more, nor more
registers. `--cold` takes other weights in every call, as a model does, so that they come from
memory, and the median. `--write` keeps the times of products in tiles of many sizes where the test
of the tile choice reads them; it takes minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import iree.runtime as rt
import numpy as np

from jq.base.system.processor import LIMIT, LIMITS, permit_tiles, this_processor
from jq.formats import Format, get_format
from jq.kernels import (
    Attention,
    Bias,
    Convolution,
    DecodeDot,
    Depthwise,
    Dequantize,
    Gemm,
    Gemv,
    Kernel,
    Normalize,
    Quantize,
    QuantizeRows,
    RegisterTile,
    RowQuantization,
    available,
    detect,
)
from jq.kernels.kernel import MatrixProduct
from tests.kernels.harness import compile_text, linked

SECONDS = 0.3  # for each kernel
NO_CACHE = 128 << 20  # bytes of weights that no cache holds
SMALLEST = 1 << 12  # bytes of weights that are worth it
TILES = ((14, 1), (8, 2), (10, 2), (13, 2), (4, 3), (6, 3), (8, 3), (4, 4), (6, 4), (4, 6), (2, 8))
MEASURED = Path(__file__).resolve().parents[2] / "tests/kernels/measured_tiles.json"


@dataclass(frozen=True)
class Timing:
    kernel: Kernel
    milliseconds: float

    @property
    def operations(self) -> float:
        """10^9 arithmetic operations a second."""
        return operations(self.kernel) / self.milliseconds / 1e6

    @property
    def bandwidth(self) -> float:
        """10^9 bytes of operands and results a second."""
        types = [*self.kernel.operands, *self.kernel.results]
        size = sum(int(np.prod(t.shape)) * t.dtype.itemsize for t in types)
        return size / self.milliseconds / 1e6


def operations(kernel: Kernel) -> int:
    """Arithmetic operations of one call; a multiply-add counts two."""
    match kernel:
        case Attention():
            return 4 * kernel.batch * kernel.heads * kernel.queries * kernel.keys * kernel.dim
        case Convolution() | Depthwise():
            return 2 * kernel.pixels * math.prod(kernel.weight_shape)
        case Normalize():
            return 12 * kernel.m * kernel.k
        case QuantizeRows():
            return (9 if kernel.scheme.dynamic else 8) * kernel.m * kernel.k
        case MatrixProduct():
            return 2 * getattr(kernel, "batch", 1) * kernel.m * kernel.k * kernel.n
        case _:
            raise TypeError(f"unknown number of operations of {kernel.family}")


def gemms(isa: str) -> Iterator[Kernel]:
    steps = (Dequantize(per_row=True), Bias())
    for m in (1, 8, 32, 128, 512):
        for k, n in ((256, 256), (384, 1536), (768, 768), (1024, 4096), (4096, 1024)):
            yield Gemm(isa=isa, m=m, k=k, n=n, unsigned=True, epilogue=steps)


def floats(isa: str) -> Iterator[Kernel]:
    for element in ("bf16", "f32"):
        for m, k, n in ((128, 384, 1536), (128, 1536, 384), (197, 768, 768)):
            yield Gemm(isa=isa, m=m, k=k, n=n, element=element, epilogue=(Bias(),))


def tiles(isa: str) -> Iterator[Kernel]:
    """Products in register tiles of many sizes, the chosen one among them."""
    steps = (Dequantize(per_row=True), Bias())
    for m in (8, 32, 128, 197):
        for k, n in ((384, 384), (384, 1536), (1536, 384), (768, 768), (1024, 4096)):
            plain = Gemm(isa=isa, m=m, k=k, n=n, unsigned=True, epilogue=steps)
            chosen = (plain.tiling.rows, plain.tiling.vectors)
            sizes = {(min(rows, m), vectors) for rows, vectors in TILES}
            for tile in sorted({chosen, *sizes}):
                yield replace(plain, cut=RegisterTile(*tile))


def rows(isa: str) -> Iterator[Kernel]:
    for scheme in ("symmetric", "asymmetric", "static"):
        yield QuantizeRows(isa=isa, m=128, k=1536, scheme=RowQuantization(scheme))
    yield Normalize(isa=isa, m=128, k=384, scheme=RowQuantization())


def gemvs(isa: str) -> Iterator[Kernel]:
    for m in (1, 4, 128):
        for bits in (4, 8):
            yield Gemv(isa=isa, m=m, k=4096, n=4096, bits=bits, scale="f16")


def decodes(isa: str) -> Iterator[Kernel]:
    """Stored weights of every kind with float activations: one token, and a prompt."""
    channel = {"int8": (1, 0), "float8_e4m3fn": (1, 0), "float8_e5m2": (1, 0), "nvfp4": (1, 16)}
    for m in (1, 128):
        for name in sorted(Format.registry):
            own = get_format(name).default_block((4096, 4096), 1)
            block = channel.get(name) or own or (1, 32)
            float_scales = name.startswith(("int", "uint")) and block[1]
            scale = "float16" if float_scales else "float32"
            yield DecodeDot(
                isa=isa, m=m, k=4096, n=4096, format=name, block=block, scale_type=scale
            )


def convolutions(isa: str) -> Iterator[Kernel]:
    steps = (Dequantize(), Quantize(divide=False, unsigned=True))
    for size, channels, filters, window, stride in (
        (56, 64, 64, 3, 1),
        (28, 128, 128, 3, 1),
        (14, 256, 256, 3, 1),
        (7, 512, 512, 3, 1),
        (56, 256, 64, 1, 1),
        (224, 3, 64, 7, 2),
    ):
        padded = size + window // 2 * 2
        yield Convolution(
            isa=isa,
            batch=1,
            height=padded,
            width=padded,
            channels=channels,
            filters=filters,
            window=(window, window),
            strides=(stride, stride),
            unsigned=True,
            epilogue=steps,
        )
    for size, channels, stride in ((112, 32, 1), (112, 96, 2), (14, 384, 1)):
        yield Depthwise(
            isa=isa,
            batch=1,
            height=size + 2,
            width=size + 2,
            channels=channels,
            window=(3, 3),
            strides=(stride, stride),
            unsigned=True,
            epilogue=steps,
        )


def attentions(isa: str) -> Iterator[Kernel]:
    for length, heads, dim in ((128, 12, 32), (197, 12, 64)):
        width = 3 * heads * dim
        yield Attention(
            isa=isa,
            batch=1,
            queries=length,
            keys=length,
            heads=heads,
            kv_heads=heads,
            dim=dim,
            widths=(width,) * 3,
            starts=(0, heads * dim, 2 * heads * dim),
            scale=dim**-0.5,
        )


FAMILIES = {
    "gemm": gemms,
    "floats": floats,
    "tiles": tiles,
    "rows": rows,
    "gemv": gemvs,
    "decode": decodes,
    "convolution": convolutions,
    "attention": attentions,
}


def measure(kernels: list[Kernel], cold: bool = False) -> Iterator[Timing]:
    """The best time of each, those of an instruction set compiled together; `cold`, the median with
    other weights each time.
    """
    for isa in dict.fromkeys(kernel.isa for kernel in kernels):
        some = [kernel for kernel in kernels if kernel.isa == isa]
        with at_most(isa):
            program = compile_text(linked(some))
        yield from _measure(program, some, cold)


@contextmanager
def at_most(isa: str) -> Iterator[None]:
    """This machine passes for one without better instruction sets, where it can."""
    before = os.environ.get(LIMIT)
    if isa in LIMITS and isa != detect().name:
        os.environ[LIMIT] = isa
    try:
        yield
    finally:
        os.environ.pop(LIMIT, None)
        if before is not None:
            os.environ[LIMIT] = before


def _measure(program: bytes, kernels: list[Kernel], cold: bool) -> Iterator[Timing]:
    permit_tiles()
    config = rt.Config("local-sync")
    module = rt.VmModule.copy_buffer(config.vm_instance, program)
    context = rt.VmContext(config.vm_instance, modules=[*config.default_vm_modules, module])
    for i, kernel in enumerate(kernels):
        function = module.lookup_function(f"f{i}")
        arguments = _arguments(config.device, kernel, cold)
        times: list[float] = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(times) < 2 * len(arguments):
            results = rt.VmVariantList(len(kernel.results))
            start = time.perf_counter()
            context.invoke(function, arguments[len(times) % len(arguments)], results)
            times.append(time.perf_counter() - start)
        yield Timing(kernel, 1e3 * (float(np.median(times)) if cold else min(times)))


def _arguments(device: Any, kernel: Kernel, cold: bool) -> list[Any]:
    """Operands for a call; `cold`, for many, that differ in the largest one: the weights."""
    arrays = [
        np.full(t.shape, 1 if t.element[0] == "i" else 0.01, t.dtype) for t in kernel.operands
    ]
    shared = [rt.asdevicearray(device, array) for array in arrays]
    largest = max(range(len(arrays)), key=lambda i: arrays[i].nbytes)
    size = arrays[largest].nbytes
    copies = 1 + NO_CACHE // size if cold and size >= SMALLEST else 1
    found = []
    for _ in range(copies):
        own = rt.asdevicearray(device, arrays[largest])
        operands = rt.VmVariantList(len(shared))
        for value in (*shared[:largest], own, *shared[largest + 1 :]):
            operands.push_ref(value._buffer_view)
        found.append(operands)
    return found


def write(cpu: str, timings: list[Timing]) -> None:
    """Adds the times of products by the size of their tiles, in microseconds, to `MEASURED`."""
    data = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    for timing in timings:
        kernel = timing.kernel
        if isinstance(kernel, Gemm) and isinstance(kernel.cut, RegisterTile):
            table = data.setdefault(f"{kernel.isa}, {cpu}", {}).setdefault(kernel.label, {})
            table[f"{kernel.cut.rows}x{kernel.cut.vectors}"] = round(timing.milliseconds * 1e3, 1)

    def block(name: str, table: dict[str, Any]) -> str:
        lines = [f"  {json.dumps(shape)}: {json.dumps(times)}" for shape, times in table.items()]
        return f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}"

    blocks = ",\n".join(block(name, table) for name, table in data.items())
    MEASURED.write_text(f"{{\n{blocks}\n}}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", action="append", choices=[i.name for i in available()])
    parser.add_argument("--family", action="append", choices=list(FAMILIES))
    parser.add_argument("--only", default="", help="kernels with this text in their name")
    parser.add_argument("--cold", action="store_true", help="weights from memory; the median")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the times of `tiles`")
    options = parser.parse_args()
    names = options.isa or [detect().name]
    families = options.family or [f for f in FAMILIES if f != "tiles"]
    kernels = [k for f in families for name in names for k in FAMILIES[f](name)]
    kernels = [k for k in kernels if options.only in f"{k.family} {k.label}"]
    cpu = this_processor().model or platform.processor()
    timings = list(measure(kernels, options.cold))
    if options.write:
        write(cpu, timings)
    if options.json:
        table = [
            {"kernel": t.kernel.name, "isa": t.kernel.isa, "milliseconds": t.milliseconds}
            for t in timings
        ]
        print(json.dumps({"cpu": cpu, "kernels": table}))
        return
    how = "median, weights from memory" if options.cold else "best"
    print(f"{cpu}, one core (local-sync), {how}, {SECONDS} s each")
    for t in timings:
        what = f"{t.kernel.family} {t.kernel.label}"
        rates = f"{t.operations:7.0f} Gop/s {t.bandwidth:6.1f} GB/s"
        print(f"{t.kernel.isa:14} {what:44} {t.milliseconds:9.4f} ms {rates}")
