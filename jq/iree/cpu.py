"""Processors: what this one has, and what a compiled module needs. Names are LLVM's."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from jq.base.errors import UserError
from jq.base.system.processor import Processor, limit, machine_name, this_processor


def _flags(text: str) -> dict[str, str]:
    """LLVM's names -> the flags in /proc/cpuinfo, after `=` where the two differ."""
    pairs = (word.partition("=") for word in text.split())
    return {name: flag or name for name, _, flag in pairs}


# The features whose instructions a compiler puts into loops; others (caches, system calls) decide
# nothing.
_X86 = _flags("""
    sse3=pni ssse3 sse4a sse4.1=sse4_1 sse4.2=sse4_2 popcnt avx avx2 fma fma4 xop f16c bmi=bmi1 bmi2
    movbe lzcnt=abm aes vaes pclmul=pclmulqdq vpclmulqdq gfni adx sha=sha_ni
    avx512f avx512cd avx512dq avx512bw avx512vl avx512ifma avx512vbmi avx512vbmi2=avx512_vbmi2
    avx512vnni=avx512_vnni avx512bitalg=avx512_bitalg avx512vpopcntdq=avx512_vpopcntdq
    avx512bf16=avx512_bf16 avx512fp16=avx512_fp16 avxvnni=avx_vnni avxvnniint8=avx_vnni_int8
    avxvnniint16=avx_vnni_int16 avxifma=avx_ifma avxneconvert=avx_ne_convert
    amx-tile=amx_tile amx-int8=amx_int8 amx-bf16=amx_bf16 amx-fp16=amx_fp16
""")
_AARCH64 = _flags("neon=asimd dotprod=asimddp fullfp16=asimdhp lse=atomics i8mm bf16 sve sve2")
_FLAGS = {"x86_64": _X86, "aarch64": _AARCH64}

# What LLVM's names of levels mean, without which a name says too little of a program that has more.
_V3 = "sse3 ssse3 sse4.1 sse4.2 popcnt avx avx2 fma f16c bmi bmi2 movbe lzcnt"
_V4 = f"{_V3} avx512f avx512cd avx512dq avx512bw avx512vl"
_LEVELS = {"x86-64": "", "x86-64-v3": _V3, "x86-64-v4": _V4}

HOST = "--iree-llvmcpu-target-cpu=host"


@dataclass(frozen=True)
class Cpu:
    """A processor, or what a module asks of one.

    Attributes:
        architecture: `x86_64`, `aarch64`, ...
        features: LLVM's names, those of the tables above alone.
        name: for people; empty when a module does not name one."""

    architecture: str
    features: frozenset[str]
    name: str = ""

    @property
    def beyond(self) -> list[str]:
        """The features that the level of its name does not have, sorted."""
        level = _LEVELS.get(self.name)
        return [] if level is None else sorted(self.features - set(level.split()))

    def lacks(self, needed: "Cpu") -> tuple[str, ...]:
        """The features that `needed` has and this one has not, sorted."""
        if needed.architecture and needed.architecture != self.architecture:
            return (needed.architecture,)
        return tuple(sorted(needed.features - self.features))


def host() -> Cpu | None:
    """This machine's processor; None where the system does not list its features."""
    return named_by_llvm(this_processor())


def believed_flags(flags: Iterable[str]) -> list[str]:
    """The compiler's flags, where "host" means no more than `JAXQ_MAX_ISA` allows."""
    here = host()
    if limit() is None or here is None:
        return list(flags)
    features = ",".join(f"+{name}" for name in sorted(here.features))
    poorer = ["--iree-llvmcpu-target-cpu=x86-64", f"--iree-llvmcpu-target-cpu-features={features}"]
    return [part for flag in flags for part in (poorer if flag == HOST else [flag])]


def named_by_llvm(processor: Processor) -> Cpu | None:
    known = _FLAGS.get(processor.machine, {})
    features = frozenset(name for name, flag in known.items() if flag in processor.flags)
    return Cpu(processor.machine, features, processor.model) if processor.flags else None


def needed_by(program: str) -> Cpu:
    """Features that the code of a compiled program may use, read from the compiler's program."""
    names = re.findall(r'\bcpu = "([^"]*)"', program)
    triples = re.findall(r'\btarget_triple = "([^"-]*)', program)
    listed = ",".join(re.findall(r'\bcpu_features = "([^"]*)"', program)).split(",")
    architecture = machine_name(triples[0]) if triples else ""
    known = _FLAGS.get(architecture, {})
    features = frozenset(f[1:] for f in listed if f.startswith("+") and f[1:] in known)
    return Cpu(architecture, features, names[0] if names else "")


def check_host(needed: Cpu, *, hint: str = "compile it on this machine") -> None:
    """Refuses what this machine cannot run, before an illegal instruction ends the process."""
    here = host()
    if here is None:
        return
    if missing := here.lacks(needed):
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        what = f"the artifact is compiled for another processor: this one has no {shown}"
        raise UserError(what, hint=hint)
