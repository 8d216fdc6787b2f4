"""The programs of an artifact: one for each target, of which a machine runs the best that it can.

model.vmfb, program.mlir         of the first target, the best
model.2.vmfb, program.2.mlir     of the second, and so on

An artifact of several sizes has those of the first size first."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from jq.base.errors import UserError
from jq.base.system.processor import permit_tiles, this_processor
from jq.iree import cpu
from jq.kernels import ISAS, detect
from jq.target.target import Target

MODULE, DUMP = "model.vmfb", "program.mlir"
_NUMBERED = re.compile(r"model\.\d+\.vmfb|program\.\d+\.mlir")

_TILES = re.compile(r"llvm\.x86\.t(?:ile|dp)")
_ASKS = "movl $$0x1023"  # what `jq.kernels.machine.amx` asks Linux for tiles with
_TILED = "uses matrix tiles (AMX), which a process has to ask Linux for (arch_prctl): "
_ITSELF = (
    "it does so itself, also under IREE's own tools; where a sandbox forbids that, compile with"
    " --target avx512_vnni"
)
_NOT_ITSELF = (
    "`jaxq` does, IREE's own tools end without a message: compile it again for them, with this"
    " version of jaxq"
)


@dataclass(frozen=True)
class TargetProgram:
    """Attributes:
    target: its name.
    kernels: instruction set of our kernels, or `none`.
    vmfb: the compiled module, or its file.
    dump: the compiler's own program after its folding, the audit's evidence.
    variant: which of the artifact's sizes it is for."""

    target: str
    kernels: str
    vmfb: bytes | Path
    dump: str
    variant: int = 0

    @cached_property
    def needs(self) -> cpu.Cpu:
        """Features of a processor that its code may use."""
        return cpu.needed_by(self.dump)

    @cached_property
    def on_tiles(self) -> bool:
        """Its kernels use matrix tiles, which belong to a process that has asked for them."""
        return _TILES.search(self.dump) is not None

    def requirements(self, alone: bool = True) -> tuple[str, ...]:
        """Requirements of running it without `jaxq`, in sentences without their full stop; `alone`:
        the artifact has no program for another processor."""
        needs = self.needs
        like = needs.name if needs.name not in ("", "generic") else ""
        where = f"{needs.architecture} processors" + (f" with all that {like} has" if like else "")
        where += f", and {', '.join(needs.beyond)}" if needs.beyond else ""
        poorer = (
            alone and needs.architecture == "x86_64" and needs.features and self.kernels in ISAS
        )
        hint = "; for any x86-64, compile with --target llvm-cpu-portable" if poorer else ""
        found = [f"runs on {where}{hint}"] if needs.architecture else []
        asks = _ITSELF if _ASKS in self.dump else _NOT_ITSELF
        return (*found, *([_TILED + asks] if self.on_tiles else []))

    @property
    def size(self) -> int:
        """Bytes of the module."""
        return self.vmfb.stat().st_size if isinstance(self.vmfb, Path) else len(self.vmfb)


def file_names(index: int) -> tuple[str, str]:
    """The names of a program's module and dump; 0 is the first program."""
    return (f"model.{index + 1}.vmfb", f"program.{index + 1}.mlir") if index else (MODULE, DUMP)


def is_program_file(name: str) -> bool:
    return name in (MODULE, DUMP) or _NUMBERED.fullmatch(name) is not None


def kernels_of(target: Target) -> str:
    """The instruction set of a target's kernels, or `none`."""
    return detect().name if target.kernels == "host" else target.kernels


def best_first(target: Target) -> Target:
    """A target of several programs with the fastest instruction set first, which it then is."""
    if not target.members:
        return target
    order = {name: i for i, name in enumerate(ISAS)}
    members = sorted(target.members, key=lambda t: order.get(kernels_of(t), len(order)))
    update = {"name": target.name, "members": tuple(members), "programs": target.programs}
    return members[0].model_copy(update=update)


def choose(programs: Sequence[TargetProgram]) -> TargetProgram | None:
    """The best program of the first size, of several given best first, that this machine runs.

    One whose instructions are there but slow (`Isa.vendor`) is passed over where another runs.
    None: there is no such program."""
    programs = [p for p in programs if p.variant == programs[0].variant]
    here = cpu.host()
    if here is None:  # nobody knows what it has: the one that asks for least
        return programs[-1]
    fits = [p for p in programs if not here.lacks(p.needs) and _permitted(p)]
    vendor = this_processor().vendor
    fast = (p for p in fits if p.kernels not in ISAS or ISAS[p.kernels].vendor in ("", vendor))
    return next(fast, fits[0] if fits else None)


def _permitted(program: TargetProgram) -> bool:
    """True if this process may use what the kernels do: matrix tiles have to be asked for."""
    return not (program.kernels in ISAS and ISAS[program.kernels].tiles) or permit_tiles()


def check_runs(programs: Sequence[TargetProgram]) -> None:
    """Refuses an artifact without a program for this machine, where it would crash.

    Raises:
        UserError: it says what is lacking, and for what to compile."""
    if choose(programs) is not None:
        return
    portable = ", or for llvm-cpu-portable" if this_processor().machine == "x86_64" else ""
    hint = f"compile it with --target {detect().name}{portable}"
    if len(programs) == 1:
        cpu.check_host(programs[0].needs, hint=hint)
    names = ", ".join(program.target for program in programs)
    raise UserError(f"the artifact has programs for {names}, none of which runs here", hint=hint)


KeyOf = Callable[[str, np.ndarray], str]


class SharedWeights:
    """Attributes:
    arrays: key -> array, of all programs."""

    def __init__(self, key_of: KeyOf) -> None:
        self._key_of = key_of
        self._keys: dict[str, list[str]] = {}  # of one weight in all programs
        self.arrays: dict[str, np.ndarray] = {}

    def key_of(self, target: str) -> KeyOf:
        """Keys of the weights of a program: those of the programs before it where the bytes are the
        same, else with the target's name after them."""

        def key_of(name: str, array: np.ndarray) -> str:
            key = self._key_of(name, array)
            keys = self._keys.setdefault(key, [key])
            for each in keys:
                known = self.arrays.get(each)
                if known is None or _same(known, array):
                    return each
            keys.append(f"{key}@{target}")
            return keys[-1]

        return key_of

    def add(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The weights of one more program, by their keys."""
        self.arrays.update(arrays)


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return False
    return bytes_of(x).data == bytes_of(y).data


def bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
