"""Symbolic dimensions: every program has fixed sizes, so they get their values here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jq.errors import UserError
from jq.ir import editing, func, ir, run_passes, walk
from jq.tracing.scope import scope


def concrete_shape(
    shape: Sequence[Any], name: str, sizes: Mapping[str, int] | None
) -> tuple[int, ...]:
    """`shape` with its symbolic dimensions (`b`, `2*b + 1`) evaluated at `sizes`."""
    return tuple(_size(dim, name, sizes or {}) for dim in shape)


def _size(dim: Any, name: str, sizes: Mapping[str, int]) -> int:
    if not hasattr(dim, "_evaluate"):  # an integer, not a symbolic expression of JAX
        return int(dim)
    missing = sorted(dim._get_vars() - set(sizes))
    if missing:
        raise _no_size(f"dimension {dim}", name, missing)
    return int(dim._evaluate(dict(sizes)))


def _no_size(what: str, name: str, missing: Sequence[str]) -> UserError:
    options = " ".join(f"--size {m}=8" for m in missing)
    wanted = ", ".join(f"{m!r}: 8" for m in missing)
    hint = f"give {options}, in Python jq.trace(model, sizes={{{wanted}}})"
    return UserError(f"{what} has no size", op=name, hint=hint)


def argument_shapes(
    main: func.FuncOp, sizes: Mapping[str, int] | None
) -> list[tuple[int, ...]] | None:
    """Shapes of the arguments with `?` replaced by `sizes["arg0[0]"]`; None when all are fixed."""
    types = [ir.RankedTensorType(t) for t in main.type.inputs]
    if all(t.has_static_shape for t in types):
        return None
    shapes, missing = [], []
    for i, t in enumerate(types):
        shape = list(t.shape)
        for axis in (a for a in range(t.rank) if t.is_dynamic_dim(a)):
            key = f"arg{i}[{axis}]"
            if sizes is None or key not in sizes:
                missing.append(key)
            shape[axis] = (sizes or {}).get(key, 1)
        shapes.append(tuple(shape))
    if missing:
        raise _no_size(f"dimension {missing[0]}", main.name.value, missing)
    return shapes


def specialise(module: ir.Module, main: func.FuncOp, shapes: Sequence[Sequence[int]]) -> None:
    """Gives the arguments of `@main` fixed shapes and carries them through the module."""
    with editing():
        types = ",".join(
            str(ir.RankedTensorType.get(list(shape), ir.RankedTensorType(t).element_type))
            for shape, t in zip(shapes, main.type.inputs, strict=True)
        )
    try:
        run_passes(
            module,
            f"stablehlo-refine-arguments{{types={types}}}",
            "stablehlo-refine-shapes",
            "func.func(stablehlo-canonicalize-dynamism)",
            "canonicalize",
            "func.func(stablehlo-check-shape-assertions)",
            "symbol-dce",
        )
    except ir.MLIRError as error:
        reason = next((d.message for d in error.error_diagnostics), str(error))
        raise UserError(f"the model does not accept these sizes: {reason}") from error


def require_static(block: ir.Block) -> None:
    """Refuses a program in which a size is known at run time only."""
    for op in walk(block):
        for value in op.results:
            if isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape:
                raise UserError(
                    f"{op.operation.name} has a size that depends on data: {value.type}",
                    op=scope(op.location) or None,
                    hint="fix the sizes of the inputs",
                )
