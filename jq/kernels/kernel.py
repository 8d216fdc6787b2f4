"""Kernels: frozen descriptions that know their operands and their weights' layout.

A program calls a kernel through a private function declaration that carries the description as JSON
(`jq.kernel`); `link` gives every such declaration the body that is registered for the description's
type (`jq.kernels.emit.dispatches`) when a module is handed over. Descriptions need no compiler."""

import hashlib
import json
import types
import typing
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, dataclass_transform, get_args, get_type_hints

from jq.base.errors import InternalError, UserError
from jq.base.registry import in_words, register
from jq.kernels.machine.isa import Isa, get_isa
from jq.kernels.schedule.layout import Sequences
from jq.kernels.tensor import TensorType, pad_last

ATTRIBUTE = "jq.kernel"


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """A kernel for fixed shapes and one instruction set. A subclass is a frozen dataclass, and one
    family, unless it is `shared` by several; `QuantizeRows` has the name `quantize_rows`."""

    family: ClassVar[str] = ""
    registry: ClassVar[dict[str, type["Kernel"]]] = {}

    isa: str

    def __init_subclass__(cls, shared: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True, kw_only=True)(cls)
        if shared:
            return
        if "family" not in vars(cls):
            cls.family = in_words(cls, "_")
        register(Kernel.registry, "kernel family", cls.family, cls)

    @property
    def target(self) -> Isa:
        return get_isa(self.isa)

    @property
    def name(self) -> str:
        """A symbol that equal kernels share: family, shape and a digest of the description."""
        digest = hashlib.sha256(self.to_json().encode()).hexdigest()[:8]
        return f"{self.family}_{self.label}_{digest}"

    @property
    @abstractmethod
    def label(self) -> str:
        """The shape, for people."""

    @property
    @abstractmethod
    def operands(self) -> tuple[TensorType, ...]:
        """Types of the operands, in order."""

    @property
    @abstractmethod
    def results(self) -> tuple[TensorType, ...]:
        """Types of the results, in order."""

    @property
    def row_operands(self) -> tuple[int, ...]:
        """Operands of which a row of the results reads its own row alone."""
        return ()

    def by_sequences(self, sequences: Sequences) -> "Kernel | None":
        """The same with one operand more that says which rows are wanted; None: it takes none."""
        return None

    def to_json(self) -> str:
        return json.dumps({"kernel": self.family, **_plain(self)}, sort_keys=True)

    @staticmethod
    @cache
    def from_json(text: str) -> "Kernel":
        """The kernel that `to_json` described; anything else is a `UserError`."""
        try:
            data = json.loads(text)
            cls = Kernel.registry[data.pop("kernel")]
            return typing.cast(Kernel, _build(cls, data))
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise UserError(f"not a kernel description: {error!r}", location=ATTRIBUTE) from None


class ByColumn(Kernel, shared=True):
    """A kernel with operands by column."""

    code_operands: ClassVar[int] = 1  # of products

    @property
    @abstractmethod
    def columns(self) -> int:
        """Their length: vectors are whole."""

    def pad_columns(self, values: Any) -> Any:
        """[..., N] -> [..., columns]: zeros after them."""
        return pad_last(values, self.columns)


class MatrixProduct(ByColumn, shared=True):
    """A product [M, K] x [K, N] -> [M, N]."""

    m: int
    k: int
    n: int

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.n) < 1:
            raise InternalError(f"empty product {self.label}")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def columns(self) -> int:
        """N': N, or the lanes of a vector where N is smaller."""
        return max(self.n, self.target.lanes)


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries; one that names its `kind` carries it."""
    if is_dataclass(value):
        data = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        kind = getattr(type(value), "kind", None)
        return {"kind": kind, **data} if kind else data
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _named(kinds: typing.Sequence[Any]) -> dict[str, Any]:
    return {cls.kind: cls for cls in kinds}


def _build(hint: Any, data: Any) -> Any:
    """The inverse of `_plain`, led by the type hints."""
    if typing.get_origin(hint) is tuple:
        return tuple(_build(get_args(hint)[0], d) for d in data)
    if isinstance(hint, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        if data is None:
            return None
        return _build(kinds[0] if len(kinds) == 1 else _named(kinds)[data["kind"]], data)
    if not is_dataclass(hint):
        return data
    cls: Any = hint
    if "kind" in data:
        cls = getattr(cls, "registry", _named([cls]))[data.pop("kind")]
    hints = get_type_hints(cls)
    unknown = set(data) - {f.name for f in fields(cls)}
    if unknown:
        raise KeyError(f"{cls.__name__} has no field {min(unknown)}")
    return cls(**{key: _build(hints[key], value) for key, value in data.items()})
