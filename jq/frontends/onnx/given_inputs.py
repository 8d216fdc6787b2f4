"""Inputs of a graph: their example values, sizes that are given, values that are fixed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jq.base.errors import UserError
from jq.frontends.onnx.graph import File
from jq.frontends.onnx.tensors import numpy_type, shape_of
from jq.frontends.tracing.dynamic import no_single_size

Sizes = Mapping[str, int | Sequence[int]]


@dataclass(frozen=True)
class Symbol:
    """A dimension that the file leaves open, as `jq.trace` wants it: it gets its value there."""

    name: str

    def _get_vars(self) -> set[str]:
        return {self.name}

    def _evaluate(self, sizes: Mapping[str, int]) -> int:
        return sizes[self.name]

    def __repr__(self) -> str:
        return self.name


def fixed_inputs(file: File, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    known = file.graph.inputs
    for name in values:
        if name not in known:
            hint = f"its inputs are {', '.join(known)}"
            raise UserError(f"the model has no input {name!r}", location=str(file.path), hint=hint)
    return {name: _array(file, name, value) for name, value in values.items()}


def _array(file: File, name: str, value: Any) -> np.ndarray:
    dtype, shape = _declared(file, name)
    try:
        array = np.asarray(value).astype(dtype)
    except (TypeError, ValueError) as error:
        raise UserError(f"value of {name!r}: {error}", location=str(file.path)) from error
    if array.ndim == 0 and shape and all(n in (1, None) or not isinstance(n, int) for n in shape):
        array = array.reshape([1] * len(shape))
    if shape is not None and len(shape) != array.ndim:
        raise UserError(f"value of {name!r} has {array.ndim} axes, the model takes {len(shape)}")
    return array


def _declared(file: File, name: str) -> tuple[np.dtype[Any], list[Any] | None]:
    """Type and shape of an input; a symbolic size is its name, an open one None."""
    kind = file.graph.types[name]
    if not kind.HasField("tensor_type"):
        what = kind.WhichOneof("value") or "nothing"
        raise UserError(f"input {name!r} is no tensor but {what}", location=str(file.path))
    dtype = numpy_type(kind.tensor_type.elem_type, name)
    if dtype.hasobject:
        raise UserError(f"input {name!r} holds strings", location=str(file.path))
    return dtype, shape_of(kind)


def given_sizes(file: File, sizes: Sizes, inputs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Whole shapes by input; every name is checked to be one of the model's."""
    symbols: set[str] = set()
    for name in inputs:
        for axis, n in enumerate(_declared(file, name)[1] or ()):
            if not isinstance(n, int):
                symbols.add(n or f"{name}[{axis}]")
    shapes = {}
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer):
            if name in symbols:
                raise no_single_size(name, size)
            if name not in inputs:
                raise _no_size(file, name, [*symbols, *inputs])
            try:
                shapes[name] = tuple(int(n) for n in size)  # text, from a command line
            except ValueError:
                raise no_single_size(name, "".join(map(str, size))) from None
        elif name not in symbols:
            raise _no_size(file, name, [*symbols])
    return shapes


def _no_size(file: File, name: str, names: Sequence[str]) -> UserError:
    known = ", ".join(sorted(names)) or "none"
    return UserError(
        f"no dimension or input of the model is called {name!r}",
        location=str(file.path),
        hint=f"there are: {known}",
    )


def example(
    file: File, name: str, shapes: Mapping[str, tuple[int, ...]], sizes: Sizes
) -> jax.ShapeDtypeStruct:
    dtype, declared = _declared(file, name)
    given = shapes.get(name)
    if declared is None and given is None:
        how = f"give it: sizes={{{name!r}: (1, 3, 224, 224)}}"
        raise UserError(f"input {name!r} has no shape", location=str(file.path), hint=how)
    if declared is not None and given is not None and not _fits(declared, given):
        hint = None
        if len(given) > 2 and _fits(declared, (given[0], given[-1], *given[1:-1])):
            hint = "the model has channels first: give np.moveaxis(x, -1, 1)"
        raise UserError(f"input {name!r} has shape {declared}, not {given}", hint=hint)
    shape: list[Any] = []
    for axis, n in enumerate(given or declared or ()):
        symbol = n or f"{name}[{axis}]"
        size = sizes.get(symbol) if isinstance(symbol, str) else symbol
        shape.append(Symbol(symbol) if size is None else size)
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def _fits(declared: Sequence[Any], given: Sequence[int]) -> bool:
    """True if an input may have a shape: a size that has a name may be any."""
    pairs = zip(declared, given, strict=False)
    return len(given) == len(declared) and all(n == g for n, g in pairs if isinstance(n, int))
