"""Owners of stored constants: the weights that they belong to."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jq.iree.dump.stored import StoredConstant

_MLIR = {
    "bool": "i1",
    "bfloat16": "bf16",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    **{f"float{n}": f"f{n}" for n in (16, 32, 64)},
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"i{n}" for n in (8, 16, 32, 64)},
}


def mlir_name(dtype: str) -> str:
    """`float32` -> `f32`; MLIR's own names pass."""
    return _MLIR.get(dtype, dtype)


def weight_of(name: str, known: Collection[str]) -> str | None:
    """The weight among `known` that a constant of this name is, or is a part of."""
    plain = name.rpartition("#")[0] or name
    options = (name, name.rpartition(":")[0], plain, plain.rpartition(":")[0])
    return next((o for o in options if o in known), None)


@dataclass
class Owners:
    """The constants of each weight: `path`, `path:part`, and either with a `#2` after it.

    `rest` belongs to no weight yet. IREE forgets the name of a small constant when it folds a
    reshape into it, or gives it that of the op that reads it, and a kernel takes a bias or a
    norm's scale under the name of its product: such constants count for a weight that misses
    data of that type and size.
    """

    known: Mapping[str, str]  # a weight's own name, or that of the op that reads it, to the weight
    named: dict[str, list[StoredConstant]] = field(default_factory=lambda: defaultdict(list))
    rest: list[StoredConstant] = field(default_factory=list)

    @staticmethod
    def of(
        constants: Sequence[StoredConstant],
        known: Sequence[str],
        read_by: Mapping[str, str] | None = None,
    ) -> Owners:
        """`read_by`: the weights of ops, whose kernels store them under the op's name."""
        owners = Owners({**(read_by or {}), **{name: name for name in known}})
        for constant in constants:
            owner = next(filter(None, map(owners._owner, (*constant.names, constant.name))), None)
            (owners.named[owner] if owner else owners.rest).append(constant)
        return owners

    def _owner(self, name: str) -> str | None:
        found = weight_of(name, self.known)
        return None if found is None else self.known[found]

    def share(self, sizes: Mapping[str, int]) -> None:
        """Gives each of some weights, of so many elements, its part of what is stored of all:
        their products are one.
        """
        stored, total = [c for name in sizes for c in self.named.pop(name, ())], sum(sizes.values())
        for constant in stored if total else ():
            for name, size in sizes.items():
                count = math.prod(constant.shape) * size // total
                part = replace(constant, shape=(count,), bytes=constant.bytes * size // total)
                self.named[name].append(part)

    def encoded(
        self, name: str, parts: Mapping[str, Mapping[str, Any]], size: int
    ) -> list[StoredConstant]:
        """The constants of a weight of `size` elements that should have `parts`.

        That is: its parts (kernels pad some), what else was made of its codes, and any copy of
        the whole. Smaller float data under its name is somebody else's.
        """
        own, stored = self.named[name], []
        for part in parts.values():
            dtype, count = mlir_name(part["dtype"]), math.prod(part["shape"])
            match = _closest(own, dtype, count, 2 * count)
            if match is not None:
                own.remove(match)
                stored.append(match)
                continue
            # `NAME:part` is a part of something else.
            lost = [c for c in self.rest if not any(":" in n for n in c.names)]
            if (match := _closest(lost, dtype, count, count)) is not None:
                self.rest.remove(match)
                stored.append(match)
        for constant in own:
            whole = math.prod(constant.shape) >= size
            (stored if whole or constant.dtype.startswith("i") else self.rest).append(constant)
        return stored

    def plain(self, name: str, spec: Mapping[str, Any]) -> list[StoredConstant]:
        """The constants of a weight that stays float; none when it was folded into another."""
        if self.named[name]:
            return self.named[name]
        dtype, shape = mlir_name(spec["dtype"]), spec["shape"]
        for pieces in (1, *shape[:1]):  # a stack may be stored slice by slice
            size = math.prod(shape) // max(pieces, 1)
            alike = [c for c in self.rest if c.dtype == dtype and math.prod(c.shape) == size]
            if len(alike) >= pieces > 0:
                for constant in alike[:pieces]:
                    self.rest.remove(constant)
                return alike[:pieces]
        return []


def _closest(
    constants: Iterable[StoredConstant], dtype: str, least: int, most: int
) -> StoredConstant | None:
    """The smallest constant of a type with `least` to `most` elements."""
    fitting = [c for c in constants if c.dtype == dtype and least <= math.prod(c.shape) <= most]
    return min(fitting, key=lambda c: c.bytes, default=None)
