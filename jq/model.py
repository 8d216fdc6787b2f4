"""The model a user hands in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jq.errors import UserError

Batch = tuple[Any, ...]  # one tuple of inputs, in the order of the function's arguments
Batches = Iterable[Batch] | Callable[[], Iterable[Batch]] | None


@dataclass(frozen=True)
class Model:
    """A JAX function with its parameters and what is needed to judge it.

    Attributes:
        fn: `fn(params, *inputs)`; inputs and result may be any pytrees of arrays.
        params: pytree of arrays; its leaves become named weights of the program.
        example_inputs: one tuple of inputs that fixes shapes and types (`jax.ShapeDtypeStruct`
            leaves will do).
        calibration: batches for static ranges, or a function that returns them.
        evaluation: batches to compare on, or a function that returns them.
        labels: one integer label per sample of `evaluation`, when there are any (array, or a
            function that returns it).
        metric: `metric(outputs, labels) -> {name: value}`, outputs stacked over the batches.
        name: for reports.
        input_names: names of the inputs in files; `arg0`, `arg1`, ... by default.
        x64: trace with JAX's 64-bit types, so that i64 and f64 stay what they are.
    """

    fn: Callable[..., Any]
    params: Any = field(repr=False)
    example_inputs: Batch = field(repr=False)
    calibration: Batches = field(default=None, repr=False)
    evaluation: Batches = field(default=None, repr=False)
    labels: Any = field(default=None, repr=False)
    metric: Callable[[Any, Any], Mapping[str, float]] | None = None
    name: str = "model"
    input_names: Sequence[str] | None = field(default=None)
    x64: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.example_inputs, tuple | list):
            raise UserError(
                f"example_inputs is a {type(self.example_inputs).__name__}, not a tuple",
                hint="one input is (x,), none are ()",
            )
        if not callable(self.fn):
            raise UserError(f"fn is a {type(self.fn).__name__}, not a function")


def batches(source: Batches) -> list[Batch] | None:
    """The batches of a source given either way; None stays None."""
    if source is None:
        return None
    return list(source() if callable(source) else source)
