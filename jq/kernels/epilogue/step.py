"""A step of an epilogue, its operands and the types of a list of steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, dataclass_transform

from jq.base.errors import InternalError
from jq.base.registry import in_words, register
from jq.kernels.tensor import TensorType

COLUMN, ROW, ELEMENT, SCALAR = "column", "row", "element", "scalar"
Accesses = tuple[tuple[str, str], ...]


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Step:
    """One step. `operands` pairs an access (`column`, ...) with an element type.

    A subclass is a frozen dataclass, and one kind, unless it is `shared` by several."""

    kind: ClassVar[str] = ""
    registry: ClassVar[dict[str, type["Step"]]] = {}
    result: ClassVar[str] = "f32"  # element type after the step
    source: ClassVar[str] = "f32"  # and before it
    packs: ClassVar[bool] = False  # it can be cut in two: `whole` and `pack`
    long: ClassVar[bool] = False  # it has dozens of operations
    takes: ClassVar[Accesses] = ()  # `operands`, where they are always the same

    def __init_subclass__(cls, shared: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True)(cls)
        if shared:
            return
        if "kind" not in vars(cls):
            cls.kind = in_words(cls, "_")
        register(Step.registry, "epilogue step", cls.kind, cls)

    @property
    def operands(self) -> Accesses:
        return self.takes


def check(steps: Sequence[Step], element: str = "i32") -> str:
    """The element type after `steps`; raises `InternalError` when one cannot follow another."""
    for step in steps:
        if step.source != element:
            raise InternalError(f"epilogue step {step.kind!r} takes {step.source}, gets {element}")
        element = step.result
    return element


def operand_types(
    steps: Sequence[Step], result: tuple[int, ...], padded: int, rows: tuple[int, ...] | None = None
) -> list[TensorType]:
    """The type of every operand of `steps`, for a result of shape `[*rows, n]`."""
    rows = result[:-1] if rows is None else rows
    shapes = {COLUMN: (padded,), ROW: rows, ELEMENT: result, SCALAR: (1,)}
    return [TensorType(shapes[how], what) for step in steps for how, what in step.operands]
