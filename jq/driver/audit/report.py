"""The result of an audit: rows, the JSON document, and tables for people."""

import math
from dataclasses import dataclass, is_dataclass
from typing import Any

from rich.table import Table

from jq.base.tables import plain_table, size, to_html, to_text


@dataclass(frozen=True)
class StoredWeight:
    """A float weight of the model and what the artifact stores of it."""

    name: str
    shape: tuple[int, ...]
    format: str
    granularity: str
    stored_bytes: int
    float_bytes: int


@dataclass(frozen=True)
class AuditedContraction:
    """Element types that the program multiplies and accumulates; `?` where it shows none."""

    name: str
    op: str
    lhs: str
    rhs: str
    acc: str
    kernel: str | None = None
    merged_from: tuple[str, ...] = ()


@dataclass(frozen=True)
class FloatUse:
    """An op that could have been quantized and stayed float."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True, repr=False)
class Audit:
    """The audit that `jaxq inspect` shows.

    `verified` is true when the program shows all that the manifest claims; `warnings` say what it
    does not show, and what costs memory. `other_constant_bytes` belong to no weight. `programs` are
    target and bytes of each that the artifact has, `sizes` are its sizes and the bytes of their
    programs, where there are several; the rest is of the program that runs here, at the first size,
    and so are `requirements`: what it takes to run it without `jaxq`."""

    weights: tuple[StoredWeight, ...]
    contractions: tuple[AuditedContraction, ...]
    float_ops: tuple[FloatUse, ...]
    module_bytes: int
    parameter_bytes: int
    float_parameter_bytes: int
    other_constant_bytes: int = 0
    verified: bool = True
    warnings: tuple[str, ...] = ()
    programs: tuple[tuple[str, int], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    requirements: tuple[str, ...] = ()
    float_asked: bool = False  # the settings leave activations float

    @property
    def ratio(self) -> float:
        """Module and parameters together, over the float parameters."""
        stored = self.module_bytes + self.parameter_bytes
        return stored / self.float_parameter_bytes if self.float_parameter_bytes else math.nan

    def to_dict(self) -> dict[str, Any]:
        """The document of `jaxq inspect --json`."""
        own = {key: _plain(value) for key, value in vars(self).items() if key != "float_asked"}
        return own | {
            "programs": [{"target": target, "bytes": count} for target, count in self.programs],
            "sizes": [{"size": label, "bytes": count} for label, count in self.sizes],
        }

    def tables(self) -> list[Table]:
        """Stored weights, types of products, and ops that stayed float, as far as there are any."""
        weights = plain_table(
            "weight", "shape", "format", "granularity", "stored", "of float", title="Weights"
        )
        for w in self.weights:
            share = f"{w.stored_bytes / w.float_bytes:.3f}" if w.float_bytes else ""
            shape, stored = "x".join(map(str, w.shape)), size(w.stored_bytes)
            weights.add_row(w.name, shape, w.format, w.granularity, stored, share)
        products = plain_table("contraction", "op", "types", "kernel", title="Contractions")
        for c in self.contractions:
            name = f"{c.name} ({', '.join(c.merged_from)})" if c.merged_from else c.name
            products.add_row(name, c.op, f"{c.lhs} x {c.rhs} -> {c.acc}", c.kernel or "")
        floats = plain_table("op", "kind", "why", title="Stayed float")
        for f in self.float_ops:
            floats.add_row(f.name, f.op, f.reason)
        return [t for t in (weights, products, floats) if t.row_count]

    def summary(self) -> str:
        stored = f"{size(self.module_bytes)} of program"
        if self.parameter_bytes:
            stored += f" and {size(self.parameter_bytes)} of weights beside it"
        if self.float_parameter_bytes:
            times = self.ratio
            share = f"{times:.0f} times" if times >= 10 else f"{100 * times:.3g} % of"
            stored += f", {share} the {size(self.float_parameter_bytes)} of the float weights"
        return "\n".join(
            [
                stored,
                self._arithmetic(),
                *self._programs(),
                "verified against the compiler's program" if self.verified else "NOT VERIFIED",
                *(f"warning: {w}" for w in self.warnings),
                *self.requirements,
            ]
        )

    def verdict(self) -> str:
        """Compares the size with that of the float weights, in a sentence without its full stop."""
        if not self.ratio < 1:
            return "it is no smaller than the float weights: most of it is code"
        return f"it is {1 / self.ratio:.1f} times smaller than the float weights"

    def _programs(self) -> list[str]:
        found = {"programs": self.programs, "sizes": self.sizes}
        return [
            f"{what}: " + ", ".join(f"{name} {size(n)}" for name, n in each)
            for what, each in found.items()
            if len(each) > 1
        ]

    def _arithmetic(self) -> str:
        """The storage of weights and the arithmetic of products, in one line."""
        low = [w for w in self.weights if 0 < w.stored_bytes < w.float_bytes]
        formats = sorted({w.format for w in low} - {"folded"})
        types = [(c.lhs, c.rhs, c.acc) for c in self.contractions]
        count, integer = len(types), types.count(("i8", "i8", "i32"))
        stored = ""
        if formats:
            floats = sum(w.float_bytes for w in self.weights) or 1
            share = sum(w.float_bytes for w in low if w.format in formats) / floats
            stored = f"{share:.0%} of the weights stored as {', '.join(formats)}; "
        if integer:
            return f"{stored}{integer} of {count} products in integers (i8 x i8 -> i32)"
        asked = ", as this pipeline asks" if self.float_asked else ""
        return f"{stored}arithmetic in float{asked}"

    def _repr_html_(self) -> str:
        return to_html(*self.tables(), self.summary())

    def __str__(self) -> str:
        return to_text(*self.tables()) + "\n" + self.summary()

    __repr__ = __str__  # at a prompt, too


def _plain(value: Any) -> Any:
    """Rows as dictionaries, tuples as lists."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return {k: _plain(v) for k, v in vars(value).items()} if is_dataclass(value) else value
