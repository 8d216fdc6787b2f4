"""From a model, or a file of one, to a `Program` at level `float`."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from jq.base import LOG, UserError, read_input
from jq.base.guard.worker import WORKER
from jq.base.tree import check_depth
from jq.formats import QuantizedTensor
from jq.frontends.model import Model, how_to_take
from jq.frontends.tracing import simplify
from jq.frontends.tracing.constants import lift_constants
from jq.frontends.tracing.custom_calls import drop_annotations, refuse_devices
from jq.frontends.tracing.dynamic import Sizes, require_static
from jq.frontends.tracing.legalize import inline_calls, legalize
from jq.frontends.tracing.lower import lower
from jq.frontends.tracing.modules import Imported, import_module, parse_stablehlo, read_exported
from jq.frontends.tracing.naming import name_ops
from jq.frontends.tracing.quantized_types import open_quantized_types
from jq.frontends.tracing.source import load_model
from jq.frontends.tracing.weights import Leaf, bind, data_of, restore_stored
from jq.ir import Program, TensorSpec, dtype_of, func, ir, parse_module, run_passes, shape_of
from jq.ir.build import settle_type, string_attr
from jq.ir.encodings import read_encodings, store_weight
from jq.ir.mlir_context import bytecode_of
from jq.ir.quantized.read import from_quant_types
from jq.ir.values import functions_of


def trace(
    model: Model | Program | ir.Module | str | Path, *, sizes: Mapping[str, int] | None = None
) -> Program:
    """The float program of a model.

    Args:
        model: a `jq.Model`, a StableHLO module (which is left as it is), the path of a file,
            or what the command line takes (`package.module:name`). A `Program` comes back itself.
        sizes: values of symbolic dimensions: by name (`b`), or by argument and axis
            (`arg0[0]`) in a module where they have none."""
    given = Sizes(sizes)
    program = _traced(load_model(model) if isinstance(model, str) else model, given)
    given.refuse_unused()
    return program


def _traced(model: Model | Program | ir.Module | Path, sizes: Sizes) -> Program:
    if isinstance(model, Program):
        return model
    if isinstance(model, Model):
        return _from_model(model, sizes)
    if isinstance(model, ir.Module):
        return _from_module(import_module(parse_module(bytecode_of(model)), None, sizes))
    if isinstance(model, Path):
        return _from_module(_read(model, sizes))
    hint = how_to_take(model) or "give jq.Model(fn, params, example_inputs)"
    raise UserError(f"a {type(model).__name__} is no model", hint=hint)


def _read(path: Path, sizes: Sizes) -> Imported:
    data, what = read_input(path), str(path)
    WORKER.ask("jq.frontends.tracing.entry:try_file", data, what, path=what, sizes=sizes.plain())
    return _imported(data, path, sizes)


def try_file(data: bytes, path: str, sizes: Mapping[str, int] | None) -> None:
    """The whole way from a file's bytes to a program, for what may go wrong. Runs in a process that
    may crash (`jq.base.guard`): MLIR's readers and passes do, on files made for that."""
    _from_module(_imported(data, Path(path), sizes))


def _imported(data: bytes, path: Path, sizes: Mapping[str, int] | None) -> Imported:
    if path.suffix == ".jaxexport":
        return read_exported(data, str(path), sizes)
    return import_module(parse_stablehlo(data, str(path)), str(path), sizes)


def _from_model(model: Model, sizes: Mapping[str, int] | None) -> Program:
    found = lower(model, sizes)
    constants, notes = flatten(found.module, [name for name, _ in found.params])
    main = main_of(found.module)
    weights = bind(main.entry_block, len(found.inputs), found.params)
    update_signature(main)
    notes = [*found.notes, *notes]
    return make_program(found, {**weights, **constants}, notes=notes, traced=True)


def _from_module(imported: Imported) -> Program:
    constants, notes = flatten(imported.module)
    return make_program(imported, constants, notes=notes)


def flatten(
    module: ir.Module, taken: Collection[str] = ()
) -> tuple[dict[str, np.ndarray], list[str]]:
    """One function of plain StableHLO, in place: no calls, no constant carries, no duplicates.

    Large constants become arguments after the others; gives their names, none of them `taken`, and
    their data; and notes on what was left out."""
    refuse_devices(module)
    from_quant_types(module)
    open_quantized_types(module)
    simplify.sort_approximate(module)
    simplify.plain_products(module)
    legalize(module)
    inline_calls(module)
    block = main_of(module).entry_block
    notes = drop_annotations(module, block)
    require_static(block)
    simplify.drop_empty(block)
    simplify.hoist_invariants(block)
    constants = lift_constants(block, taken)
    update_signature(main_of(module))
    run_passes(module, "canonicalize", "cse", "symbol-dce")
    return constants, notes


# IREE's compiler calls files after the module: `../x` would be written where somebody else wants.
_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)


def make_program(
    found: Imported, weights: Mapping[str, Leaf], *, notes: Sequence[str] = (), traced: bool = False
) -> Program:
    """A verified program of `@main(inputs..., weights...)`, whose ops have their names."""
    check_depth(found.in_tree, "inputs")
    check_depth(found.out_tree, "outputs")
    module, main = found.module, main_of(found.module)
    block = main.entry_block
    terminator = block.operations[len(block.operations) - 1]
    for key in ("res_attrs", "arg_attrs"):
        if key in main.attributes:
            del main.attributes[key]
    listed = read_encodings(module)
    ordinary = _NAME.fullmatch(string_attr(module.operation, "sym_name") or "")
    for key in list(module.operation.attributes):
        if key != "sym_name" or not ordinary:
            del module.operation.attributes[key]
    program = Program(
        module,
        {name: data_of(leaf) for name, leaf in weights.items()},
        _specs(found.inputs, list(block.arguments)[: len(found.inputs)]),
        _specs(found.outputs, list(terminator.operands)),
        in_tree=found.in_tree,
        out_tree=found.out_tree,
        notes=tuple(notes),
    )
    for note in notes:
        LOG.warning("%s", note)
    if not traced:  # a traced model lists nothing: its markers are its own
        restore_stored(program, listed)
    for name, leaf in weights.items():
        if isinstance(leaf, QuantizedTensor):
            store_weight(program, name, leaf.encoding, leaf.parts)
    program.drop_unused_weights()
    program.refresh()
    name_ops(program)
    program.verify()
    return program


def main_of(module: ir.Module) -> func.FuncOp:
    return functions_of(module)["main"]


def update_signature(main: func.FuncOp) -> None:
    """Makes the function's type agree with the arguments of its block."""
    settle_type(main)
    if "arg_attrs" in main.attributes:
        del main.attributes["arg_attrs"]


def _specs(names: Sequence[str], values: Sequence[ir.Value]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name, shape_of(value), dtype_of(value).name)
        for name, value in zip(names, values, strict=True)
    )
