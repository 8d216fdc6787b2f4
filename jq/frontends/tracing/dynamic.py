"""Symbolic dimensions: every program has fixed sizes, so they get their values here."""

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from jq.base.errors import UserError, known
from jq.base.from_jax import clean_scope, scope, with_shapes
from jq.frontends.tracing.legalize import inline_calls
from jq.ir import bytecode_of, editing, func, ir, parse_module, run_passes, walk

LARGEST = (1 << 31) - 1  # of a size
_AXES = 60  # of a tensor; NumPy has 64, and passes add some
_MOST = 1 << 40  # elements of a tensor: the address space of a machine


class Sizes(Mapping[str, int]):
    """Sizes by the name of a dimension, which notes what the model asks for: `refuse_unused` then
    knows which names are of no dimension.

    Raises:
        UserError: a size is none."""

    def __init__(self, sizes: Mapping[str, int] | None) -> None:
        self._sizes, self._asked = dict(sizes or {}), set[str]()
        for name, size in self._sizes.items():
            number = hasattr(size, "__index__") and not isinstance(size, bool)
            if not number or not 0 <= size <= LARGEST:
                raise no_single_size(name, size)

    def __getitem__(self, name: str) -> int:
        self._asked.add(name)
        return self._sizes[name]

    def plain(self) -> dict[str, int]:
        """The sizes as plain numbers, for another process."""
        return {name: int(size) for name, size in self._sizes.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def refuse_unused(self) -> None:
        for name in self._sizes.keys() - self._asked:
            hint = "all its sizes are fixed"
            if self._asked:
                equal = "sizes that the model holds equal (`a == b`) go by one name"
                hint = f"{known(name, sorted(self._asked))}; {equal}"
            raise UserError(f"the model has no open dimension {name!r}", hint=hint)


def no_single_size(name: str, sizes: Any) -> UserError:
    """The error for a size that is not an integer or is too large."""
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        hint = f"it is a number from 0 to {LARGEST}"
        return UserError(f"size {name} is {sizes!r:.40}", hint=hint)
    return UserError(
        f"{name} is given {len(sizes)} sizes here, and a program has one",
        hint=f"`jaxq compile --size {name}={','.join(map(str, list(sizes)[:4]))}` makes an artifact"
        " of several, in Python jq.compile(model, sizes={...})",
    )


MOST_SIZES = 16  # programs of an artifact for one target


def each_size(
    sizes: Mapping[str, Any] | None, shapes: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Sizes where names have several (`{"batch": [1, 8]}`), one by one: every combination. A name
    in `shapes` has a list that is one shape.

    Raises:
        UserError: there are too many, or one is given twice."""
    lists = {  # whose numbers a command line gives as text
        name: [int(n) if isinstance(n, str) and n.isdecimal() else n for n in size]
        if isinstance(size, list | tuple) and name not in shapes
        else [size]
        for name, size in (sizes or {}).items()
    }
    for name, values in lists.items():
        if not values or len(set(map(str, values))) < len(values):
            raise UserError(f"size {name} is {values!r:.40}", hint="numbers that differ")
    if math.prod(map(len, lists.values())) > MOST_SIZES:
        raise UserError(f"more than {MOST_SIZES} sizes", hint="compile several artifacts")
    return [dict(zip(lists, found, strict=True)) for found in itertools.product(*lists.values())]


def concrete_shape(
    shape: Sequence[Any], name: str, sizes: Mapping[str, int] | None
) -> tuple[int, ...]:
    """`shape` with its symbolic dimensions (`b`, `2*b + 1`) evaluated at `sizes`."""
    return tuple(_size(dim, name, sizes or {}) for dim in shape)


def _size(dim: Any, name: str, sizes: Mapping[str, int]) -> int:
    if not hasattr(dim, "_evaluate"):  # an integer, not a symbolic expression of JAX
        return int(dim)
    names = dim._get_vars()
    missing = sorted(v for v in names if v not in sizes)
    if missing:
        raise _no_size(f"dimension {dim}", name, missing)
    return int(dim._evaluate({v: sizes[v] for v in names}))


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


def specialise(
    module: ir.Module,
    main: func.FuncOp,
    shapes: Sequence[Sequence[int]],
    sizes: Mapping[str, int] | None,
) -> ir.Module:
    """The module with fixed shapes of the arguments of `@main`, carried through all of it.

    Functions are opened first: one that is called with sizes (`t // 2`) has shapes of its own at
    each call. The shapes are inferred by JAX's own passes; `sizes` are named where they refuse."""
    inline_calls(module)
    stated = set(_STATED.findall(str(module)))  # of what the export asks of sizes, and JAX checks
    with editing():
        types = ",".join(
            str(ir.RankedTensorType.get(list(shape), ir.RankedTensorType(t).element_type))
            for shape, t in zip(shapes, main.type.inputs, strict=True)
        )
    try:
        run_passes(module, f"stablehlo-refine-arguments{{types={types}}}")
        return parse_module(with_shapes(bytecode_of(module)))
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        diagnostics = getattr(error, "error_diagnostics", ())
        reason = next((d.message for d in diagnostics), str(error))
        raise _not_accepted(reason, sizes or {}, sorted(stated)) from error


# A check of the export that fails, and where in the model shapes do not fit.
_STATED = re.compile(r"symbolic shape constraint (.+?)\. Expected")
_LEAST = re.compile(r"Expected value (.+?) for dimension variable '(.+?)'")
_INSIDE = re.compile(r'error: (?:loc\("(.*?)"\): )?([^\n]*)')


def _not_accepted(text: str, sizes: Mapping[str, int], stated: Sequence[str]) -> UserError:
    """The error for sizes that JAX's inference of shapes refuses with `text`."""
    reason, place = text.partition("\n")[0], None
    if found := _STATED.search(text):
        reason, stated = f"it is exported for {found[1]}", []
    elif found := _LEAST.search(text):
        reason = f"{found[2]} {found[1]} is what it is exported for"
    elif found := _INSIDE.search(text):
        place, reason = clean_scope(found[1] or "") or None, found[2]
    given = ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "these sizes"
    needs = f"it is exported for {', '.join(stated)}; " if stated else ""
    hint = f"{needs}give others, or export the model for these"
    return UserError(f"the model does not accept {given}: {reason}", op=place, hint=hint)


def require_static(block: ir.Block) -> None:
    """Refuses a program in which a size is known at run time only, or that no machine holds."""
    for value in block.arguments:
        _check_extent(value, "argument")
    for op in walk(block):
        for value in op.results:
            if isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape:
                what = f"{op.operation.name} has a size that depends on data: {value.type}"
                hint = "fix the sizes of the inputs"
                raise UserError(what, op=scope(op.location) or None, hint=hint)
            _check_extent(value, scope(op.location) or op.operation.name)


def _check_extent(value: ir.Value, name: str) -> None:
    if not isinstance(value.type, ir.RankedTensorType):
        return
    if value.type.rank > _AXES:
        raise UserError(f"a tensor of {value.type.rank} axes, at most {_AXES} are read", op=name)
    if math.prod(value.type.shape) > _MOST:
        raise UserError(f"a tensor of more than {_MOST} elements: {value.type}", op=name)
