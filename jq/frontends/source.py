"""Sources: a model in any of its forms, traced once, and the data of its calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jq.base import npz
from jq.base.errors import OF_USERS, JqError, UserError, check_type
from jq.base.tree import structure_of
from jq.frontends.model import Batch, Model
from jq.frontends.tracing.dynamic import each_size
from jq.frontends.tracing.entry import trace as trace_model
from jq.frontends.tracing.inputs import flat_batches
from jq.frontends.tracing.source import load_model
from jq.ir import Program

# Batches (tuples of inputs), a function that returns them, or an `.npz` file of samples.
Data = Iterable[Batch] | Callable[[], Iterable[Batch]] | str | Path | None
Calls = Sequence[Sequence[np.ndarray]]  # flat inputs, call by call


def check_files(*data: Any) -> None:
    """Refuses paths among the data of a call that hold no arrays, before slow work."""
    for path in data:
        if isinstance(path, str | Path):
            npz.read(Path(path), headers_alone=True)


class LazyCalls(Sequence[Sequence[np.ndarray]]):
    """Calls that are made when they are first looked at: not every pipeline does."""

    def __init__(self, make: Callable[[], Calls | None]) -> None:
        self._make = make

    @property
    def made(self) -> bool:
        """True if somebody has looked."""
        return "_calls" in self.__dict__

    @cached_property
    def _calls(self) -> Calls:
        return self._make() or ()

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, i: Any) -> Any:
        return self._calls[i]


@dataclass(frozen=True)
class Source:
    """A compilation's input: the float program, and the model that it came from when there is one.

    Attributes:
        sizes: of the symbolic dimensions, by name.
        others: the same at further sizes, for one artifact of all.

    Example:
        ```python
        source = jq.trace(model)
        print(source.program)  # StableHLO, as text
        ```"""

    program: Program
    model: Model | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    others: "tuple[Source, ...]" = ()

    def joined(self, others: "Iterable[Source]") -> "Source":
        """One source of several sizes, which have to differ in their inputs' shapes."""
        every = (self, *others)
        shapes = [tuple(s.shape for s in each.program.inputs) for each in every]
        if len(set(shapes)) < len(shapes):
            raise UserError("two sizes give the inputs the same shapes")
        return replace(self, others=every[1:])

    @property
    def in_structure(self) -> Mapping[str, Any]:
        return structure_of(self.program.in_tree, len(self.program.inputs))

    def calls(self, data: Data | LazyCalls) -> Calls | None:
        """Batches as flat arrays, shapes and types checked; None stays None, and so do calls."""
        if isinstance(data, LazyCalls):
            return data
        if isinstance(data, str | Path):
            return npz.read_samples(Path(data), self.program.inputs)
        try:
            return flat_batches(self.program.inputs, self.in_structure, data)
        except JqError:
            raise
        except OF_USERS as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise UserError(f"the data that were given failed: {reason}") from error


Sizes = Mapping[str, int | Sequence[int]]
_Model = Source | Model | Program | str | Path


@dataclass(frozen=True)
class Sized:
    """A model with the sizes of its symbolic dimensions, which is traced when it is needed: what
    was given beside it is checked first. `values` fix inputs of an ONNX file."""

    model: _Model
    sizes: Sizes
    values: Mapping[str, Any] = field(default_factory=dict)


AnyModel = _Model | Sized


def trace(model: AnyModel, *, sizes: Sizes | None = None) -> Source:
    """The float program of a model, however it is given.

    Args:
        model: a `jq.Model`; `"package.module:name"` or `"file.py:name"`; a StableHLO,
            `jax.export` or ONNX file; a `Program`.
        sizes: values of symbolic dimensions, by name; of several (`{"batch": [1, 8]}`) `jq.compile`
            makes one artifact, which chooses by the shapes of its inputs.

    Returns:
        A `Source`, which every function here takes in place of the model, so that it is traced
        once: `program` is the StableHLO module with its weights beside it (`program.module`,
        `program.weights`), `model` the `jq.Model` it came from, or None.

    Raises:
        UserError: the model cannot be found or traced, or a weight holds NaN or infinity.

    Example:
        ```python
        source = jq.trace(model)
        print(list(source.program.weights))  # names of the weights
        compiled = jq.compile(source, "int8-dynamic")  # is not traced again
        ```"""
    asked = model if isinstance(model, Sized) else Sized(model, {} if sizes is None else sizes)
    model = asked.model
    if isinstance(model, Source):
        if asked.sizes:
            raise UserError("a source is traced already", hint="give the sizes to jq.trace")
        return model
    if isinstance(model, str | Path):
        model = load_model(str(model))
    every = each_size_of(model, asked.sizes)
    first, *others = (_traced(model, each, asked.values) for each in every)
    return first.joined(others)


def each_size_of(model: Any, sizes: Sizes) -> list[dict[str, Any]]:
    """`each_size`; of an ONNX file an input may have its whole shape there."""
    check_type("sizes", sizes, Mapping, type(None))
    lists = any(isinstance(size, list | tuple) for size in sizes.values())
    if not lists or not (isinstance(model, Path) and model.suffix in (".onnx", ".tflite")):
        return each_size(sizes)
    from jq.frontends.onnx.load import describe_checked

    return each_size(sizes, {row["name"] for row in describe_checked(model)["inputs"]})


def _traced(
    model: Model | Program | str | Path, sizes: Mapping[str, int], values: Mapping[str, Any]
) -> Source:
    given: Mapping[str, int] | None = sizes or None
    if isinstance(model, Path) and model.suffix in (".onnx", ".tflite"):
        from jq.frontends.onnx import load_checked

        model, given = load_checked(model, given, values), None
    elif values:
        raise UserError("--value fixes inputs of ONNX and TFLite files alone")
    owner = model if isinstance(model, Model) else None
    return Source(trace_model(model, sizes=given), owner, sizes)
