"""StableHLO modules from files: text, bytecode, portable artifacts, and what `jax.export` wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from jq.base.errors import UserError
from jq.base.from_jax import calling_conventions, leaf_name
from jq.frontends.tracing.dynamic import argument_shapes, concrete_shape, specialise
from jq.frontends.tracing.inputs import named_leaves, unique
from jq.ir import Op, context, editing, func, ir, parse_module, stablehlo, tensor_type, walk
from jq.ir.build import string_attr
from jq.ir.portable import later_version, newest_version
from jq.ir.values import functions_of


@dataclass(frozen=True)
class Imported:
    """A module with static shapes whose `@main` takes all inputs, then parameters, in order.

    Attributes:
        inputs: names of the leading arguments.
        outputs: names of the results.
        in_tree, out_tree: structure of the tuple of inputs, and of the result.
        params: name and leaf (array, or what stands for one) of the other arguments.
        notes: what was left out."""

    module: ir.Module
    inputs: list[str]
    outputs: list[str]
    in_tree: Any = None
    out_tree: Any = None
    params: Sequence[tuple[str, Any]] = ()
    notes: tuple[str, ...] = ()


def parse_stablehlo(data: bytes, where: str) -> ir.Module:
    """A module of StableHLO or VHLO, text or bytecode."""
    try:
        module = parse_module(data, what=where)
    except UserError as error:
        if not (version := later_version(data)):
            raise
        known = f"the installed JAX reads StableHLO up to {newest_version()}"
        what = f"written for StableHLO {version}, and with ops that it did not have before: {known}"
        hint = "write it with this JAX, or install the JAX that wrote it"
        raise UserError(what, location=where, hint=hint) from error
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
        what = f"cannot read the portable artifact: {problems[0] if problems else error}"
        raise UserError(what, location=where) from error
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
        module = specialise(module, main, shapes, sizes)
        main = entry(module, where)
    return Imported(
        module,
        [f"arg{i}" for i in range(len(main.type.inputs))],
        [f"out{i}" for i in range(len(main.type.results))],
    )


def entry(module: ir.Module, where: str | None) -> func.FuncOp:
    """The one public function that no other calls."""
    functions = functions_of(module).values()
    for f in functions:
        if f.is_external:
            raise UserError("a function has no body", op=f.name.value, location=where)
    called = {name for f in functions for op in walk(f.entry_block) for name in _called(op)}
    public = [f for f in functions if string_attr(f, "sym_visibility") in (None, "public")]
    entries = public if len(public) == 1 else [f for f in public if f.name.value not in called]
    if not entries:
        raise UserError("the module has no public function", location=where)
    if len(entries) > 1:
        names = ", ".join(f.name.value for f in entries)
        what = f"the module has {len(entries)} public functions: {names}"
        raise UserError(what, location=where, hint="make all but one private")
    return entries[0]


def _called(op: Op) -> list[str]:
    """Functions that an op calls; a `custom_call` the reducer of a window of symbolic size."""
    if isinstance(op, func.CallOp):
        return [op.callee.value]
    found = op.operation.attributes.get("called_computations", [])
    return [ir.FlatSymbolRefAttr(each).value for each in found]


def read_exported(data: bytes, where: str, sizes: Mapping[str, int] | None) -> Imported:
    """A module whose `@main` takes every argument of the function, used or not."""
    exported = _deserialize(data, where)
    module = parse_stablehlo(exported.mlir_module_serialized, where)
    _require_fit(exported, entry(module, where), where)
    args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, exported.in_avals)
    positional = [name for name, _ in named_leaves(args, "arg")]
    keywords = [leaf_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(kwargs)]
    names = unique([*positional, *keywords])
    avals = zip(names, exported.in_avals, strict=True)
    shapes = [concrete_shape(aval.shape, name, sizes) for name, aval in avals]
    if any(tuple(a.shape) != s for a, s in zip(exported.in_avals, shapes, strict=True)):
        main = entry(module, where)
        first = len(main.type.inputs) - len(exported.module_kept_var_idx)
        fixed = [tuple(ir.RankedTensorType(t).shape) for t in list(main.type.inputs)[:first]]
        kept = [shapes[i] for i in exported.module_kept_var_idx]
        module = specialise(module, main, [*fixed, *kept], sizes)
    _take_all_arguments(module, entry(module, where), exported, shapes)
    results = jax.tree_util.tree_unflatten(exported.out_tree, exported.out_avals)
    return Imported(
        module,
        names,
        [name for name, _ in named_leaves(results, "out")],
        jax.tree_util.tree_structure((*args, kwargs) if kwargs else args),
        exported.out_tree,
    )


def _deserialize(data: bytes, where: str) -> export.Exported:
    try:
        exported = export.deserialize(bytearray(data))
    except Exception as error:  # a damaged file fails in many ways inside the reader
        reason = (str(error).splitlines() or [""])[0]
        what = f"cannot read the exported function: {type(error).__name__}: {reason}"
        raise UserError(what, location=where) from error
    if exported.ordered_effects or exported.unordered_effects:
        raise UserError("the exported function has side effects", location=where)
    if exported.nr_devices != 1:
        what = f"exported for {exported.nr_devices} devices, and a program runs on one"
        hint = "export it again under a mesh of one device, or without shard_map"
        raise UserError(what, location=where, hint=hint)
    return exported


def _require_fit(exported: export.Exported, main: func.FuncOp, where: str) -> None:
    """Refuses a file whose description is not that of its module: JAX takes it as it is."""
    version = exported.calling_convention_version
    known = calling_conventions()
    if not known[0] <= version <= known[1]:
        reason = f"the function is exported with calling convention {version}, known are {known}"
        raise UserError(reason, location=where, hint="export it again, with another JAX")
    kept, count = exported.module_kept_var_idx, len(exported.in_avals)
    types, results = list(main.type.inputs), list(main.type.results)
    platform = len(exported.platforms) > 1
    tree = jax.tree_util.tree_unflatten(exported.in_tree, exported.in_avals)
    fits = isinstance(tree, tuple) and [type(part) for part in tree] == [tuple, dict]
    fits &= list(kept) == sorted({i for i in kept if 0 <= i < count})
    fits &= len(types) == platform + len(kept) and len(results) == len(exported.out_avals)
    with editing():
        given = [exported.in_avals[i] for i in kept] if fits else []
        pairs = zip([*given, *exported.out_avals], [*types[platform:], *results], strict=fits)
        fits = fits and all(_is_of(aval, kind) for aval, kind in pairs)
    if not fits:
        reason = "the exported function is described as another than its module is"
        raise UserError(reason, location=where, hint="the file is damaged: export it again")


def _is_of(aval: Any, kind: ir.Type) -> bool:
    """True if a type of the module is that of an argument or a result. A key is an array of
    integers with a further axis, what has no derivative one of bools, and a symbolic size any."""
    if not isinstance(kind, ir.RankedTensorType):
        return False
    if aval.dtype == jax.dtypes.float0 or jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return True
    known = [n for n in aval.shape if isinstance(n, int)]
    if len(aval.shape) != kind.rank or min(known, default=0) < 0:
        return False
    same = tensor_type((), aval.dtype).element_type == kind.element_type
    pairs = zip(aval.shape, kind.shape, strict=True)
    free = ir.ShapedType.get_dynamic_size()
    return same and all(m == free or n == m or not isinstance(n, int) for n, m in pairs)


def _take_all_arguments(
    module: ir.Module, inner: func.FuncOp, exported: export.Exported, shapes: list[tuple[int, ...]]
) -> None:
    """Wraps the exported function, from which unused arguments were dropped, in a `@main`.

    A function for several platforms takes the index of one in front."""
    kept = exported.module_kept_var_idx
    types = list(inner.type.inputs)
    with editing():
        inner.attributes["sym_name"] = ir.StringAttr.get("exported")
        inner.attributes["sym_visibility"] = ir.StringAttr.get("private")
        kinds: list[Any] = [
            types[len(types) - len(kept) + kept.index(i)] if i in kept else tensor_type(s, a.dtype)
            for i, (s, a) in enumerate(zip(shapes, exported.in_avals, strict=True))
        ]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(kinds, list(inner.type.results)))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            operands = [block.arguments[i] for i in kept]
            if len(types) > len(kept):
                platforms = [p.lower() for p in exported.platforms]
                index = platforms.index("cpu") if "cpu" in platforms else 0
                value = ir.DenseElementsAttr.get(np.array(index, np.int32), type=types[0])
                operands.insert(0, stablehlo.constant(value))
            call = func.CallOp(list(inner.type.results), "exported", operands)
            func.ReturnOp(list(call.results))
