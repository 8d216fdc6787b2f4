"""Instruction sets as data: what a kernel needs to know about the processor it is emitted for.

A target names one (`avx512_vnni`), and `detect` names the best one of this machine."""

from dataclasses import dataclass, replace
from typing import Any

from jq.base.errors import check_known
from jq.base.system.processor import permit_tiles, this_processor

# Partial sums of a float sum along a row, whatever the lanes: its bits are the same everywhere.
CHAINS = 16


@dataclass(frozen=True)
class Dot:
    """`acc[lane] += sum_j lhs[lane, j] * rhs[lane, j]`, j < group; acc i32, which wraps, or f32.

    Attributes:
        intrinsic: LLVM's name; empty for plain multiply and add, of f32 in one operation.
        group: products per 32-bit lane.
        element: type of one operand element in registers; weights are stored i8 and widened.
        accumulates: the intrinsic takes and returns the accumulator.
        lhs_unsigned: the left operand is read as u8.
        by_element: it takes a group from any lane of a register: several are loaded at once.
        sums: so many may be added in 16 bits before `intrinsic` widens them; 0: no such thing.
        pairs: intrinsic of one: `i16[lane] = sum of two products`, saturated; where `sums`.
        result: element type of the accumulator."""

    intrinsic: str
    group: int
    element: str
    accumulates: bool
    lhs_unsigned: bool
    by_element: bool = False
    sums: int = 0
    pairs: str = ""
    result: str = "i32"


@dataclass(frozen=True)
class Memory:
    """Cost of reading weights, fitted to times of products on Zen 4 (`tests/kernels` has them).

    Attributes:
        second_cache: bytes.
        fetch: cycles of a vector of weights from the second cache.
        wait_line, wait_row: cycles until a step's weights are there from memory: for each of its
            lines, and for each row of the tile, since more rows leave fewer steps under way.
        ways, set_bytes: of the first cache: addresses so far apart share one set.
        asks: whether weights that are read once are asked for ahead of their use. On Zen 5 the
            processor's own fetching is faster by itself."""

    second_cache: int = 1 << 20
    fetch: float = 1.05
    wait_line: float = 3.75
    wait_row: float = 0.9
    ways: int = 8
    set_bytes: int = 4096
    asks: bool = True


@dataclass(frozen=True)
class Isa:
    """Attributes:
    name: how targets and kernels name it.
    machine: architecture (`x86_64`, `aarch64`), or empty for any.
    cpu_flags: what /proc/cpuinfo must list.
    lanes: 32-bit lanes of a vector register.
    registers: vector registers.
    dot: the int8 product.
    pairs: intrinsic `i16[lane] = sum of two products u8 x i8`, which saturates, or empty.
    shuffles: intrinsic that puts bytes in the order of others, in parts of 16, or empty.
    bf16_dot: intrinsic `f32[lane] += sum of two bf16 products`, or empty.
    bf16_convert: intrinsic (high f32 lanes, low f32 lanes) -> bf16 lanes.
    permute: intrinsic (f32 lanes, i32 lanes) -> the first by the low bits of the second, or empty.
    packs: intrinsics that join two vectors, saturated to half the width, in parts of 128 bits: a
        name to be filled in; or empty.
    rounds: an instruction rounds f32 to whole numbers, half to even (else LLVM calls a function).
    tiles: it has matrix tiles (`jq.kernels.machine.amx`) for int8 and bf16.
    vendor: whose processors run it fast; others have it, but `detect` passes over it.
    dot_rate, load_rate: products and loads a cycle, for the tile choice.
    pair_gain: how many times the multiply-adds of `dot` a cycle makes where sums of `pairs` are
        proven: 4/3 if all are, and 3.00 ms / 2.37 ms of mobilenet's products on a Zen 5.
    dot_latency: cycles until an accumulator can be used again.
    memory: what reading weights costs.
    compile_cpu: an LLVM processor that has it, for compile-only tests."""

    name: str
    machine: str
    cpu_flags: tuple[str, ...]
    lanes: int
    registers: int
    dot: Dot
    pairs: str = ""
    shuffles: str = ""
    bf16_dot: str = ""
    bf16_convert: str = ""
    permute: str = ""
    packs: str = ""
    rounds: bool = True
    vendor: str = ""
    tiles: bool = False
    dot_rate: float = 2.0
    load_rate: float = 2.0
    pair_gain: float = 1.27
    dot_latency: int = 5
    memory: Memory = Memory()
    compile_cpu: str = "generic"

    @property
    def macs(self) -> float:
        """Multiply-adds of codes a cycle, on vectors."""
        return self.lanes * self.dot.group * self.dot_rate

    @property
    def pair_macs(self) -> float:
        """The same of sums of pairs that are proven; 0 without such."""
        return self.macs * self.pair_gain if self.pairs else 0.0

    @property
    def multiplies_bf16(self) -> bool:
        """It has products of bf16 numbers, of vectors or of matrix tiles."""
        return self.tiles or bool(self.bf16_dot)

    def for_element(self, element: str) -> "Isa":
        """The same with the product of weights of `i8`, `bf16` (else as f32) or `f32`."""
        if element == "i8":
            return self
        dot = Dot("", 1, "f32", True, False, result="f32")
        if element == "bf16" and self.bf16_dot:
            dot = Dot(self.bf16_dot, 2, "bf16", True, False, result="f32")
        return replace(self, dot=dot, pairs="", tiles=self.tiles and element == "bf16")

    def for_bits(self, bits: int) -> "Isa":
        """The same with the product that codes of so many bits take: where the one of 8 bits has
        16-bit operands, pairs of few bits are multiplied as bytes and added in 16 bits, as often
        as cannot saturate: 32,767 / (2 * 128 * (2^bits - 1)) times."""
        sums = (2**15 - 1) // (2 * 128 * (2**bits - 1))
        if not self.pairs or not sums:
            return self
        dot = Dot(self.dot.intrinsic, 4, "i8", False, True, sums=sums, pairs=self.pairs)
        return replace(self, dot=dot)


def _vpdpbusd(bits: int) -> Dot:
    return Dot(f"llvm.x86.avx512.vpdpbusd.{bits}", 4, "i8", True, True)


def _pmaddwd(intrinsic: str) -> Dot:
    return Dot(f"llvm.x86.{intrinsic}", 2, "i16", False, False)


def _x86(name: str, flags: str, lanes: int, dot: Dot, compile_cpu: str, **more: Any) -> Isa:
    """One with registers of so many lanes, and what all with such registers have."""
    prefix, suffix, permute = {
        16: ("avx512", ".512", "llvm.x86.avx512.permvar.sf.512"),
        8: ("avx2", "", "llvm.x86.avx2.permps"),
        4: ("sse2", ".128", ""),
    }[lanes]
    return Isa(
        name,
        "x86_64",
        tuple(flags.split()),
        lanes,
        32 if lanes == 16 else 16,
        dot,
        permute=permute,
        packs=f"llvm.x86.{prefix}.{{}}{suffix}",
        compile_cpu=compile_cpu,
        **more,
    )


def _neon(name: str, flags: str, intrinsic: str, lhs_unsigned: bool, compile_cpu: str) -> Isa:
    dot = Dot(
        f"llvm.aarch64.neon.{intrinsic}.v4i32.v16i8", 4, "i8", True, lhs_unsigned, by_element=True
    )
    known = tuple(flags.split())
    return Isa(name, "aarch64", known, 4, 32, dot, dot_latency=4, compile_cpu=compile_cpu)


_AVX512 = "avx512f avx512bw avx512vl"
_VNNI = f"{_AVX512} avx512_vnni"
_CONVERT = {"bf16_convert": "llvm.x86.avx512bf16.cvtne2ps2bf16.512"}
# On Intel's, bf16 products have half the speed of f32.
_BF16 = {"bf16_dot": "llvm.x86.avx512bf16.dpbf16ps.512", "vendor": "AuthenticAMD", **_CONVERT}
_AMD: dict[str, Any] = {**_BF16, "memory": Memory(asks=False)}
_PAIRS_512 = {"pairs": "llvm.x86.avx512.pmaddubs.w.512", "shuffles": "llvm.x86.avx512.pshuf.b.512"}
_PAIRS_256 = {"pairs": "llvm.x86.avx2.pmadd.ub.sw", "shuffles": "llvm.x86.avx2.pshuf.b"}
_TILES = f"{_VNNI} avx512_bf16 amx_tile amx_int8 amx_bf16"

# Best first: `detect` takes the first that the machine has.
ISAS: dict[str, Isa] = {
    isa.name: isa
    for isa in (
        _x86("amx_int8", _TILES, 16, _vpdpbusd(512), "sapphirerapids", tiles=True, **_CONVERT),
        _x86("avx512_bf16", f"{_VNNI} avx512_bf16", 16, _vpdpbusd(512), "znver4", **_AMD),
        _x86("avx512_vnni", _VNNI, 16, _vpdpbusd(512), "icelake-server"),
        _x86("avx_vnni", "avx2 fma avx_vnni", 8, _vpdpbusd(256), "alderlake"),
        _x86(
            "avx512", _AVX512, 16, _pmaddwd("avx512.pmaddw.d.512"), "skylake-avx512", **_PAIRS_512
        ),
        _x86("avx2", "avx2 fma", 8, _pmaddwd("avx2.pmadd.wd"), "haswell", **_PAIRS_256),
        _x86("sse2", "sse2", 4, _pmaddwd("sse2.pmadd.wd"), "x86-64", rounds=False),
        _neon("aarch64_i8mm", "asimddp i8mm", "usdot", True, "neoverse-n2"),
        _neon("aarch64_dotprod", "asimddp", "sdot", False, "neoverse-n1"),
        Isa("portable", "", (), 4, 16, Dot("", 1, "i32", False, False), rounds=False),
    )
}


def get_isa(name: str) -> Isa:
    """The instruction set called `name`; an unknown name is an error that lists the known ones."""
    return ISAS[check_known("instruction set", name, ISAS)]


def available(flags: frozenset[str] | None = None, machine: str | None = None) -> list[Isa]:
    """Instruction sets of a machine, best first; for this one, matrix tiles are asked for."""
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
