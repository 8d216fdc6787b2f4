"""Owners of stored constants: the weights that they belong to."""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jq.ir import dtype_name
from jq.iree.dump.stored import StoredConstant, bit_width

Types = tuple[str, str, str]  # of both operands of a product, and of its sum


def stored_type(dtype: str) -> str:
    """MLIR's name of a NumPy type, as IREE's program has it: without a sign (`uint8` -> `i8`)."""
    return dtype_name(dtype).removeprefix("u")


BIAS = ":column_bias"  # that a kernel takes, under the name of its product


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
    data of that type and size."""

    known: Mapping[str, str]  # a weight's own name, or that of the op that reads it, to the weight
    named: dict[str, list[StoredConstant]] = field(default_factory=lambda: defaultdict(list))
    rest: list[StoredConstant] = field(default_factory=list)

    @staticmethod
    def of(constants: Iterable[StoredConstant], known: Mapping[str, str]) -> "Owners":
        owners = Owners(known)
        for constant in constants:
            owner = next(filter(None, map(owners._owner, constant.names)), None)
            (owners.named[owner] if owner else owners.rest).append(constant)
        return owners

    def _owner(self, name: str) -> str | None:
        found = None if BIAS in name else weight_of(name, self.known)
        return None if found is None else self.known[found]

    def share(self, sizes: Mapping[str, int]) -> None:
        """Gives each of some weights, of so many elements, its part of what is stored of all:
        their products are one."""
        stored, total = [c for name in sizes for c in self.named.pop(name, ())], sum(sizes.values())
        for constant in stored if total else ():
            for name, size in sizes.items():
                count = math.prod(constant.shape) * size // total
                part = replace(constant, shape=(count,), bytes=constant.bytes * size // total)
                self.named[name].append(part)

    def encoded(
        self, name: str, parts: Mapping[str, Mapping[str, Any]], size: int
    ) -> list[StoredConstant]:
        """The constants of a weight of `size` elements that should have `parts`. That is: its parts
        (kernels pad some), what else was made of its codes, and any copy of the whole. Smaller
        float data under its name is somebody else's."""
        own, stored = self.named[name], []
        for part in parts.values():
            dtype, count = stored_type(part["dtype"]), math.prod(part["shape"])
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
        dtype, shape = stored_type(spec["dtype"]), spec["shape"]
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


# Evidence in the constants and types of a dump: bits of an encoding, types of products.
_KEPT = re.compile(r"^gemv_.*_int(\d)_block")  # `jq.kernels.Gemv.label`


def kept_bits(ops: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Kernels for few rows keep the codes of a weight in as few bits as the largest needs: how
    many, of each such weight, by the name of its kernel."""
    kernels = {op.get("weight"): op.get("kernel") for op in ops}
    found = {name: _KEPT.search(kernel or "") for name, kernel in kernels.items()}
    return {name: int(m[1]) for name, m in found.items() if name and m}


def packed(constant: StoredConstant) -> bool:
    """True for the bytes of a kernel, of codes and scales together and padded to whole registers:
    the kernel's name says in how many bits it keeps codes."""
    return constant.dtype == "i8" and any(n.endswith(":packed") for n in constant.names)


def code_bits(claim: Mapping[str, Any], size: int) -> float:
    """Bits an element takes in the largest part of an encoding."""
    parts = claim["parts"].values()
    bits = max(math.prod(p["shape"]) * bit_width(stored_type(p["dtype"])) for p in parts)
    return bits / size if size else 0.0


def too_little(found: Sequence[StoredConstant], bits: float, size: int) -> bool:
    """True when there are not so many bits for each of `size` elements."""
    return 8 * sum(c.extent for c in found) < bits * size


def holds(constant: StoredConstant, size: int) -> bool:
    """True when a constant has room for a value per element of the weight."""
    return math.prod(constant.shape) >= size > 1


def by_column(constant: StoredConstant, parts: Collection[str]) -> bool:
    """True for what a kernel adds to every column of a product (scales, sums of codes, a bias) or
    multiplies it with. It is padded to whole registers: of a weight of a few elements, or of one
    row, it has as many elements as the weight."""
    ends = {(n.rpartition("#")[0] or n).rpartition(":")[2] for n in constant.names if ":" in n}
    vector = sum(n > 1 for n in constant.shape) == 1
    return vector and bool(ends) and not ends & {*parts, "packed"}


def integer(types: Types) -> bool:
    return types[2].startswith("i")


def within(shown: Types, meant: Types, kernel: bool = False) -> bool:
    """Narrower types than were meant: a conversion fused into the product, a complex number's
    parts. A wider sum is rounded less often. A kernel for a processor that does not multiply
    bfloat16 has float32, which holds the same numbers."""
    operands, wide = zip(shown[:2], meant[:2], strict=True), kernel and ("f32", "bf16")
    narrower = bit_width(shown[2]) <= bit_width(meant[2]) or wider_sum(shown, meant)
    return narrower and all((s, m) == wide or bit_width(s) <= bit_width(m) for s, m in operands)


def as_good(shown: Types, meant: Types) -> bool:
    """The operands that were meant, or bytes where they have fewer bits (which hold the same
    numbers, and which IREE's program has for them), or one of two alike, where the conversion of
    the other, a weight, is a part of the product; and their sum, or a wider one."""
    held = tuple("i8" if integer(meant) and bit_width(m) < 8 else m for m in meant[:2])
    inside = meant[0] == meant[1] in shown[:2] and within(shown, meant)
    same = inside or shown[:2] in (meant[:2], held)
    return same and (shown[2] == meant[2] or wider_sum(shown, meant))


def wider_sum(shown: Types, meant: Types) -> bool:
    return integer(shown) == integer(meant) and bit_width(shown[2]) >= bit_width(meant[2])


def swapped(types: Types) -> Types:
    return types[1], types[0], types[2]
