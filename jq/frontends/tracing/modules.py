"""StableHLO modules from files: text, bytecode or portable artifact."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jq.base.errors import UserError
from jq.frontends.tracing.dynamic import argument_shapes, specialise
from jq.ir import Op, context, editing, func, ir, parse_module, stablehlo, walk
from jq.ir.portable import later_version, newest_version


@dataclass(frozen=True)
class Imported:
    """A module with static shapes whose `@main` takes all inputs in order."""

    module: ir.Module
    inputs: list[str]
    outputs: list[str]
    in_tree: Any = None
    out_tree: Any = None


def parse_stablehlo(data: bytes, where: str) -> ir.Module:
    """A module of StableHLO or VHLO, text or bytecode."""
    try:
        module = parse_module(data, what=where)
    except UserError as error:
        if not (version := later_version(data)):
            raise
        known = f"the installed JAX reads StableHLO up to {newest_version()}"
        raise UserError(
            f"written for StableHLO {version}, and with ops that it did not have before: {known}",
            location=where,
            hint="write it with this JAX, or install the JAX that wrote it",
        ) from error
    if not any(op.operation.name.startswith("vhlo.") for op in module.body.operations):
        return module
    problems: list[str] = []

    def note(diagnostic: Any) -> bool:
        problems.append(diagnostic.message)
        return True

    handler = context().attach_diagnostic_handler(note)
    try:
        return stablehlo.deserialize_portable_artifact(context(), data)
    except ValueError as error:
        raise UserError(
            f"cannot read the portable artifact: {problems[0] if problems else error}",
            location=where,
        ) from error
    finally:
        handler.detach()


def try_module(data: bytes) -> None:
    """Reads a module and prints it, for what may go wrong on that; see `jq.base.guard.worker`."""
    parse_stablehlo(data, "the module").operation.get_asm(enable_debug_info=True)


def import_module(
    module: ir.Module, where: str | None, sizes: Mapping[str, int] | None
) -> Imported:
    """Takes a module whose one public function is the model; changes it in place."""
    main = entry(module, where)
    with editing():
        main.attributes["sym_name"] = ir.StringAttr.get("main")
    shapes = argument_shapes(main, sizes)
    if shapes is not None:
        module = specialise(module, main, shapes)
        main = entry(module, where)
    return Imported(
        module,
        [f"arg{i}" for i in range(len(main.type.inputs))],
        [f"out{i}" for i in range(len(main.type.results))],
    )


def entry(module: ir.Module, where: str | None) -> func.FuncOp:
    """The one public function that no other calls."""
    functions = [op for op in module.body.operations if isinstance(op, func.FuncOp)]
    for f in functions:
        if f.is_external:
            raise UserError("a function has no body", op=f.name.value, location=where)
    called = {
        op.callee.value
        for f in functions
        for op in walk(f.entry_block)
        if isinstance(op, func.CallOp)
    } | {name for f in functions for op in walk(f.entry_block) for name in _computations(op)}
    public = [
        f
        for f in functions
        if "sym_visibility" not in f.attributes
        or ir.StringAttr(f.attributes["sym_visibility"]).value == "public"
    ]
    entries = public if len(public) == 1 else [f for f in public if f.name.value not in called]
    if not entries:
        raise UserError("the module has no public function", location=where)
    if len(entries) > 1:
        names = ", ".join(f.name.value for f in entries)
        raise UserError(
            f"the module has {len(entries)} public functions: {names}",
            location=where,
            hint="make all but one private",
        )
    return entries[0]


def _computations(op: Op) -> list[str]:
    """Functions that a `custom_call` runs inside: the reducer of a window of symbolic size."""
    found = op.operation.attributes.get("called_computations", [])
    return [ir.FlatSymbolRefAttr(each).value for each in found]
