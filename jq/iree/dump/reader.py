"""Reader of the compiler's program after its own folding: the ground truth of an audit.

IREE hoists and evaluates expressions of constants, and then stores the results. `DUMP_PHASE` is the
phase after that, where contractions are still linalg ops with visible element types. The dump is
parsed with IREE's own bindings: large constants are elided, their types remain."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iree.compiler import ir

from jq.base.errors import UserError
from jq.ir import Op
from jq.iree.dump import instructions
from jq.iree.dump import stored as held
from jq.iree.dump.products import MultiplyAdd, contraction_of

DUMP_PHASE = "global-optimization"


def dump_flags(directory: Path) -> list[str]:
    """Flags that make iree-compile write its phases, names kept and constants elided."""
    return [
        f"--dump-compilation-phases-to={directory}",
        "--mlir-print-debuginfo",
        "--mlir-elide-elementsattrs-if-larger=16",
        "--mlir-elide-resource-strings-if-larger=16",
    ]


def read_phases(directory: Path) -> str:
    """The text of `DUMP_PHASE` among the files that `dump_flags` produced, and what a later phase
    shows of constants that are decoded to memory, as comments after it."""
    program = next(directory.glob(f"*.{DUMP_PHASE}.mlir")).read_text(encoding="utf-8")
    later = next(directory.glob(f"*.{instructions.PHASE}.mlir")).read_text(encoding="utf-8")
    end = "" if program.endswith("\n") else "\n"
    return program + end + instructions.as_comments(instructions.find_expanded(later))


def all_valid(directory: Path) -> bool:
    """True if what the compiler makes of its input keeps the rules of its ops: an invalid one is
    written in MLIR's generic form, where names of ops (the module's too) are quoted; its parser may
    crash on it."""
    phases = ("input", DUMP_PHASE, instructions.PHASE)  # a defect of the compiler may come later
    for path in (path for phase in phases for path in directory.glob(f"*.{phase}.mlir")):
        with path.open(encoding="utf-8") as lines:
            heads = (line for line in lines if line.startswith(("module", '"builtin.module"')))
            if not next(heads, "").startswith("module"):
                return False
    return True


@dataclass(frozen=True)
class Contraction:
    """A loop nest that multiplies and accumulates; i8 operands that are widened to i32 count as
    `i8`. `work` orders contractions of one name by size."""

    op: str
    types: MultiplyAdd
    work: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """A dispatch that came in ready-made, and the products found in its body."""

    names: tuple[str, ...]
    products: tuple[MultiplyAdd, ...]


Shapes = tuple[tuple[int, ...], ...]
Signature = tuple[Shapes, Shapes]


@dataclass(frozen=True)
class Dump:
    """All that an audit needs from the compiler's IR.

    `derived` are tensors computed when the module is loaded: they cost memory, not file size.
    `splats` are constants that are one number everywhere: they cost neither. `expanded` are floats
    computed from constants alone at every call. `signature` are the shapes that `@main` takes and
    gives; None where there is no such function."""

    constants: tuple[held.StoredConstant, ...]
    contractions: tuple[Contraction, ...]
    kernels: tuple[Kernel, ...]
    derived: tuple[held.StoredConstant, ...]
    expanded: tuple[instructions.Expanded, ...] = ()
    signature: Signature | None = None
    splats: tuple[held.StoredConstant, ...] = ()


def read_dump(text: str) -> Dump:
    """Reads the text of `DUMP_PHASE`; raises `UserError` when it is not that."""
    with held.compiler_context():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            first = str(error).splitlines()[0]
            raise UserError(f"program.mlir cannot be read: {first}") from None
        return replace(_read(module), expanded=instructions.from_comments(text))


def try_dump(data: bytes) -> None:
    """Reads a dump, for what may go wrong on that; see `jq.base.guard.worker`."""
    read_dump(data.decode())


def _read(module: Any) -> Dump:
    constants: dict[str, held.StoredConstant] = {}
    contractions, kernels = [], []
    bodies = {  # ready-made ones, to which dispatches refer by name
        op.attributes["sym_name"].value: instructions.kernel_products(walk(op.operation))
        for op in module.body.operations
        if op.operation.name == "flow.executable"
    }
    for op in walk(module.operation):
        kind, names = op.name, held.location_names(op.location)
        if kind in held.CONSTANT_OPS:
            if constant := held.constant_of(op, names):  # several functions may mention a resource
                constants.setdefault(held.resource_key(op) or f"#{len(constants)}", constant)
        elif kind == "flow.dispatch.workgroups":
            kernels.append(Kernel(names, instructions.kernel_products(walk(op))))
        elif kind == "flow.dispatch":
            (entry,) = ir.ArrayAttr(op.attributes["entry_points"])
            kernels.append(Kernel(names, bodies[ir.SymbolRefAttr(entry).value[0]]))
        elif found := contraction_of(op):
            contractions.append(Contraction(kind.rpartition(".")[2], *found, names))

    def of(*kinds: str) -> tuple[held.StoredConstant, ...]:
        return tuple(c for c in constants.values() if c.kind in kinds)

    return Dump(
        constants=of("inline", "global", "parameter"),
        contractions=tuple(contractions),
        kernels=tuple(kernels),
        derived=of("derived"),
        splats=of("splat"),
        signature=_signature(module),
    )


def _signature(module: Any) -> Signature | None:
    """The types that the compiler notes of `@main` for its callers:
    `sync func @main(%input0: tensor<4x64xf32>) -> (%output0: tensor<4xi32>)`. An unsigned type is
    in an attribute besides: `%input0: tensor<4xi8> {iree.abi.encoding = tensor<4xui8>}`."""
    symbols = ir.SymbolTable(module.operation)
    noted = symbols["main"].attributes.get("iree.reflection") if "main" in symbols else None
    if noted is None or "iree.abi.declaration" not in noted:
        return None
    takes, _, gives = ir.StringAttr(noted["iree.abi.declaration"]).value.partition(" -> ")
    return _shapes(takes), _shapes(gives)


def _shapes(types: str) -> Shapes:
    found = re.findall(r": tensor<((?:\d+x)*)", types)
    return tuple(tuple(int(n) for n in shape.split("x")[:-1]) for shape in found)


def walk(op: Op) -> Iterator[Any]:
    """Ops inside `op`, parents first. Bodies of contractions and ready-made kernels stay closed."""
    for region in op.regions:
        for block in region:
            for inner in block:
                inner = inner.operation
                yield inner
                if not inner.name.startswith(_CLOSED):
                    yield from walk(inner)


_CLOSED = ("linalg.", "iree_codegen.inner_tiled", "flow.dispatch.workgroups", "flow.executable")
