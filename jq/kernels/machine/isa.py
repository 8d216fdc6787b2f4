"""Instruction sets as data: what a kernel needs to know about the processor it is emitted for.

A target names one (`avx512_vnni`), and `detect` names the best one of this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jq.errors import UserError
from jq.system.processor import permit_tiles, this_processor


@dataclass(frozen=True)
class Dot:
    """`acc[lane] += sum_j lhs[lane, j] * rhs[lane, j]`, j < group, acc i32, exact (it wraps).

    Attributes:
        intrinsic: LLVM's name; empty for plain multiply and add.
        group: products per 32-bit lane.
        element: type of one operand element in registers; weights are stored i8 and widened.
        accumulates: the intrinsic takes and returns the accumulator.
        lhs_unsigned: the left operand is read as u8.
    """

    intrinsic: str
    group: int
    element: str
    accumulates: bool
    lhs_unsigned: bool


@dataclass(frozen=True)
class Packs:
    """Intrinsics that join two vectors, saturated to half the width, in parts of 128 bits.

    Attributes:
        words: i32 to i16.
        signed, unsigned: i16 to i8, and to u8.
    """

    words: str
    signed: str
    unsigned: str


@dataclass(frozen=True)
class Memory:
    """What reading weights costs, fitted to times of products on Zen 4 (`tests/kernels` has them).

    Attributes:
        second_cache: bytes.
        fetch: cycles of a vector of weights from the second cache.
        wait_line, wait_row: cycles until a step's weights are there from memory: for each of its
            lines, and for each row of the tile, since more rows leave fewer steps under way.
        ways, set_bytes: of the first cache: addresses so far apart share one set.
    """

    second_cache: int = 1 << 20
    fetch: float = 1.05
    wait_line: float = 3.75
    wait_row: float = 0.9
    ways: int = 8
    set_bytes: int = 4096


@dataclass(frozen=True)
class Isa:
    """Attributes:
    name: how targets and kernels name it.
    machine: architecture (`x86_64`, `aarch64`), or empty for any.
    cpu_flags: what /proc/cpuinfo must list.
    lanes: 32-bit lanes of a vector register.
    registers: vector registers.
    dot: the int8 product.
    bf16_dot: intrinsic `f32[lane] += sum of two bf16 products`, or empty.
    bf16_convert: intrinsic (high f32 lanes, low f32 lanes) -> bf16 lanes.
    permute: intrinsic (f32 lanes, i32 lanes) -> the first by the low bits of the second, or empty.
    packs: how four vectors of i32 become one of bytes.
    rounds: an instruction rounds f32 to whole numbers, half to even (else LLVM calls a function).
    tiles: it has matrix tiles (`jq.kernels.tiles`) for int8 and bf16.
    vendor: whose processors run it fast; others have it, but `detect` passes over it.
    dot_rate, load_rate: products and loads a cycle, for the tile choice.
    dot_latency: cycles until an accumulator can be used again.
    memory: what reading weights costs.
    compile_cpu: an LLVM processor that has it, for compile-only tests.
    """

    name: str
    machine: str
    cpu_flags: tuple[str, ...]
    lanes: int
    registers: int
    dot: Dot
    bf16_dot: str = ""
    bf16_convert: str = ""
    permute: str = ""
    packs: Packs | None = None
    rounds: bool = True
    vendor: str = ""
    tiles: bool = False
    dot_rate: float = 2.0
    load_rate: float = 2.0
    dot_latency: int = 5
    memory: Memory = Memory()
    compile_cpu: str = "generic"

    @property
    def multiplies_bf16(self) -> bool:
        """It has products of bf16 numbers, of vectors or of matrix tiles."""
        return self.tiles or bool(self.bf16_dot)


def _vpdpbusd(bits: int) -> Dot:
    return Dot(f"llvm.x86.avx512.vpdpbusd.{bits}", 4, "i8", True, True)


def _pmaddwd(intrinsic: str) -> Dot:
    return Dot(intrinsic, 2, "i16", False, False)


def _packs(prefix: str, suffix: str) -> Packs:
    names = ("packssdw", "packsswb", "packuswb")
    return Packs(*(f"llvm.x86.{prefix}.{name}{suffix}" for name in names))


_PACKS_512, _PACKS_256 = _packs("avx512", ".512"), _packs("avx2", "")
_PERMUTE_512 = "llvm.x86.avx512.permvar.sf.512"
_PERMUTE_256 = "llvm.x86.avx2.permps"
_BF16_CONVERT = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"

_VNNI = Isa(
    name="avx512_vnni",
    machine="x86_64",
    cpu_flags=("avx512f", "avx512bw", "avx512vl", "avx512_vnni"),
    lanes=16,
    registers=32,
    dot=_vpdpbusd(512),
    permute=_PERMUTE_512,
    packs=_PACKS_512,
    compile_cpu="icelake-server",
)
_NEON = Isa(
    name="aarch64_dotprod",
    machine="aarch64",
    cpu_flags=("asimddp",),
    lanes=4,
    registers=32,
    dot=Dot("llvm.aarch64.neon.sdot.v4i32.v16i8", 4, "i8", True, False),
    dot_latency=4,
    compile_cpu="neoverse-n1",
)

# Best first: `detect` takes the first that the machine has.
ISAS: dict[str, Isa] = {
    isa.name: isa
    for isa in (
        replace(
            _VNNI,
            name="amx_int8",
            cpu_flags=(*_VNNI.cpu_flags, "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"),
            bf16_convert=_BF16_CONVERT,
            tiles=True,
            compile_cpu="sapphirerapids",
        ),
        replace(
            _VNNI,
            name="avx512_bf16",
            cpu_flags=(*_VNNI.cpu_flags, "avx512_bf16"),
            bf16_dot="llvm.x86.avx512bf16.dpbf16ps.512",
            bf16_convert=_BF16_CONVERT,
            vendor="AuthenticAMD",  # on Intel's, half the speed of f32
            compile_cpu="znver4",
        ),
        _VNNI,
        Isa(
            name="avx_vnni",
            machine="x86_64",
            cpu_flags=("avx2", "fma", "avx_vnni"),
            lanes=8,
            registers=16,
            dot=_vpdpbusd(256),
            permute=_PERMUTE_256,
            packs=_PACKS_256,
            compile_cpu="alderlake",
        ),
        Isa(
            name="avx512",
            machine="x86_64",
            cpu_flags=("avx512f", "avx512bw", "avx512vl"),
            lanes=16,
            registers=32,
            dot=_pmaddwd("llvm.x86.avx512.pmaddw.d.512"),
            permute=_PERMUTE_512,
            packs=_PACKS_512,
            compile_cpu="skylake-avx512",
        ),
        Isa(
            name="avx2",
            machine="x86_64",
            cpu_flags=("avx2", "fma"),
            lanes=8,
            registers=16,
            dot=_pmaddwd("llvm.x86.avx2.pmadd.wd"),
            permute=_PERMUTE_256,
            packs=_PACKS_256,
            compile_cpu="haswell",
        ),
        Isa(
            name="sse2",
            machine="x86_64",
            cpu_flags=("sse2",),
            lanes=4,
            registers=16,
            dot=_pmaddwd("llvm.x86.sse2.pmadd.wd"),
            packs=_packs("sse2", ".128"),
            rounds=False,
            compile_cpu="x86-64",
        ),
        replace(
            _NEON,
            name="aarch64_i8mm",
            cpu_flags=("asimddp", "i8mm"),
            dot=Dot("llvm.aarch64.neon.usdot.v4i32.v16i8", 4, "i8", True, True),
            compile_cpu="neoverse-n2",
        ),
        _NEON,
        Isa(
            name="portable",
            machine="",
            cpu_flags=(),
            lanes=4,
            registers=16,
            dot=Dot("", 1, "i32", False, False),
            rounds=False,
        ),
    )
}


def get_isa(name: str) -> Isa:
    """The instruction set called `name`; an unknown name is an error that lists the known ones."""
    try:
        return ISAS[name]
    except KeyError:
        known = ", ".join(ISAS)
        raise UserError(f"unknown instruction set {name!r}", hint=f"known: {known}") from None


def available(flags: frozenset[str] | None = None, machine: str | None = None) -> list[Isa]:
    """The instruction sets of a machine, best first. Default: of this one, and of this process,
    which asks for matrix tiles here.
    """
    usable = flags is not None or permit_tiles()
    here = this_processor()
    flags = here.flags if flags is None else flags
    machine = machine or here.machine
    return [
        isa
        for isa in ISAS.values()
        if isa.machine in ("", machine)
        and flags.issuperset(isa.cpu_flags)
        and (usable or not isa.tiles)
    ]


def detect() -> Isa:
    """The fastest instruction set of this machine."""
    vendor = this_processor().vendor
    return next(isa for isa in available() if isa.vendor in ("", vendor))
