"""Evidence in the constants and types of a dump: bits of an encoding, types of products."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from jq.driver.audit.owners import mlir_name
from jq.iree.dump.stored import StoredConstant, bit_width

_KEPT = re.compile(r"^gemv_.*_int(\d)_block")  # `jq.kernels.Gemv.label`


def kept_bits(ops: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Kernels for few rows keep the codes of a weight in as few bits as the largest needs: how
    many, of each such weight, by the name of its kernel."""
    kernels = {op.get("weight"): op.get("kernel") for op in ops}
    found = {name: _KEPT.search(kernel or "") for name, kernel in kernels.items()}
    return {name: int(m[1]) for name, m in found.items() if name and m}


def code_bits(claim: Mapping[str, Any], size: int) -> float:
    """Bits an element takes in the largest part of an encoding."""
    parts = claim["parts"].values()
    bits = max(math.prod(p["shape"]) * bit_width(mlir_name(p["dtype"])) for p in parts)
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
    row, it has as many elements as the weight.
    """
    ends = {(n.rpartition("#")[0] or n).rpartition(":")[2] for n in constant.names if ":" in n}
    vector = sum(n > 1 for n in constant.shape) == 1
    return vector and bool(ends) and not ends & {*parts, "packed"}


def integer(types: tuple[str, str, str]) -> bool:
    return types[2].startswith("i")


def within(shown: tuple[str, str, str], meant: tuple[str, str, str]) -> bool:
    """Narrower types than were meant: a conversion fused into the product, a complex number's
    parts. A wider sum is rounded less often."""
    operands = zip(shown[:2], meant[:2], strict=True)
    narrower = bit_width(shown[2]) <= bit_width(meant[2]) or wider_sum(shown, meant)
    return narrower and all(bit_width(s) <= bit_width(m) for s, m in operands)


def as_good(shown: tuple[str, str, str], meant: tuple[str, str, str]) -> bool:
    """The operands that were meant, and their sum, or a wider one."""
    return shown[:2] == meant[:2] and (shown[2] == meant[2] or wider_sum(shown, meant))


def wider_sum(shown: tuple[str, str, str], meant: tuple[str, str, str]) -> bool:
    return integer(shown) == integer(meant) and bit_width(shown[2]) >= bit_width(meant[2])


def swapped(types: tuple[str, str, str]) -> tuple[str, str, str]:
    return types[1], types[0], types[2]
