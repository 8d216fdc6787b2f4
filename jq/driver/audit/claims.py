"""Claims of the manifest, one by one, against what the compiler's program shows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jq.driver.audit import owners
from jq.driver.audit.report import AuditedContraction, FloatUse, StoredWeight
from jq.formats import Format
from jq.iree.dump.reader import Contraction, Dump
from jq.iree.dump.stored import StoredConstant, bit_width

FOLDED = "folded"  # a weight that went into another constant, or has an equal one
UNSEEN = "?"  # the type of a contraction that the dump does not show


@dataclass
class Claims:
    """One pass over the manifest; `false` collects disagreements, `notes` other warnings."""

    manifest: Mapping[str, Any]
    dump: Dump
    false: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    float_ops: list[FloatUse] = field(default_factory=list)
    folded: set[str] = field(default_factory=set)  # weights of which nothing is stored
    other_bytes: int = 0

    def weights(self) -> tuple[StoredWeight, ...]:
        encodings = self.manifest.get("encodings", {})
        plain = self.manifest.get("weights", {})
        names = [*encodings, *(n for n in plain if n not in encodings)]
        ops = self.manifest.get("ops", ())
        read_by = {op["name"]: op["weight"] for op in ops if op.get("weight") in names}
        stored = owners.Owners.of(self.dump.constants, names, read_by)
        splats = owners.Owners.of(self.dump.splats, names, read_by)
        derived = owners.Owners.of(self.dump.derived, names).named
        kept = owners.kept_bits(self.manifest.get("ops", ()))
        for group in self._merged(names):
            sizes = {n: math.prod({**plain, **encodings}[n]["shape"]) for n in group}
            stored.share(sizes)
            splats.share(sizes)
        rows = []
        for name in names:
            if name in encodings:
                claim = encodings[name]
                size = math.prod(claim["shape"])
                own = Format.registry.get(claim["format"]) if "codes" in claim["parts"] else None
                least = getattr(own, "bits", math.inf)  # without what pads rows
                bits = min(owners.code_bits(claim, size), kept.get(name, math.inf), least)
                found = stored.encoded(name, claim["parts"], size)
                if owners.too_little(found, bits, size):  # equal codes are a number in the program
                    found += splats.encoded(name, claim["parts"], size)
                rest = found, derived[name], stored.rest
                row = self._encoded(name, claim, kept.get(name), bits, *rest)
            else:
                row = _plain(name, plain[name], stored.plain(name, plain[name]))
            rows.append(row)
        self.other_bytes = sum(c.bytes for c in stored.rest)
        self._without_evidence()
        return tuple(rows)

    def _without_evidence(self) -> None:
        """A weight of which nothing is stored is what it is claimed to be if an equal one is."""
        claims = self.manifest.get("encodings", {})
        stored = [_kind(claim) for name, claim in claims.items() if name not in self.folded]
        for name in claims:
            one = math.prod(claims[name]["shape"]) == 1  # a number in the program, no constant
            if name in self.folded and not one and _kind(claims[name]) not in stored:
                what = f"{name} is claimed {claims[name]['format']}"
                self.false.append(f"{what} and the program shows neither it nor an equal one")

    def program(self) -> None:
        """The program takes and gives what the manifest says that the artifact does."""
        claimed = self.manifest.get("inputs"), self.manifest.get("outputs")
        if claimed == (None, None):
            return
        meant = tuple(tuple(tuple(t["shape"]) for t in side or ()) for side in claimed)
        if self.dump.signature is None:
            self.false.append("program.mlir shows no function @main: there is nothing to verify by")
        elif meant != self.dump.signature:
            takes, gives = (list(map(list, side)) for side in self.dump.signature)
            self.false.append(
                f"program.mlir is of another artifact: its @main takes {takes} and gives {gives}"
            )

    def _merged(self, known: Sequence[str]) -> list[list[str]]:
        """The weights of products that are one, each group once; a float op has its name."""
        ops = {op["name"]: op.get("weight") or op["name"] for op in self.manifest.get("ops", ())}
        merged = [op for op in self.manifest.get("ops", ()) if op.get("merged_from")]
        groups = {frozenset((op["name"], *op["merged_from"])) for op in merged}
        weights = [[owners.weight_of(ops[n], known) for n in sorted(g) if n in ops] for g in groups]
        return [[w for w in group if w] for group in weights]

    def _encoded(
        self,
        name: str,
        claim: Mapping[str, Any],
        kept: int | None,
        bits: float,
        found: Sequence[StoredConstant],
        derived: Sequence[StoredConstant],
        nameless: Sequence[StoredConstant],
    ) -> StoredWeight:
        shape = tuple(claim["shape"])
        kind, granularity = claim["format"], claim["granularity"]
        size = math.prod(shape)
        large = [c for c in found if owners.holds(c, size)]
        own = owners.code_bits(claim, size)
        wide = [c for c in large if bit_width(c.dtype) > own and not (kept and owners.packed(c))]
        if kept and kept > math.ceil(own):
            self.notes.append(
                f"the kernel keeps {kept} bits an element of {name}; {kind} has {own:g}"
            )
        if len(wide) < len(large):  # its codes are there
            wide = [c for c in wide if not owners.by_column(c, claim["parts"])]
        if wide and claim.get("float_copy"):
            other = wide.pop().dtype
            self.notes.append(f"{name} is stored in {other} besides: a rule keeps it float")
        if wide:
            self.false.append(f"{name} is claimed {kind} but stored as {wide[0].dtype}")
            kind, granularity = wide[0].dtype, "none"
        elif not found and not any(owners.holds(c, size) for c in nameless):
            self.folded.add(name)
            kind, granularity = FOLDED, "none"
        elif owners.too_little(found, bits, size):
            self.false.append(f"{name} is claimed {kind} but the program stores no such constant")
        for e in self.dump.expanded:
            mine = any(owners.weight_of(n, {name}) for n in e.names)
            if mine and math.prod(e.shape) >= size > 1:
                self.notes.append(f"{name} is decoded to {e.dtype} in memory at every call")
        for c in derived:
            if owners.holds(c, size) and bit_width(c.dtype) > bits:
                self.notes.append(f"{name} is expanded to {c.dtype} in memory when loaded")
        floats = size * bit_width(owners.mlir_name(claim.get("float_dtype", "float32"))) // 8
        total = sum(c.bytes for c in found)
        if total > floats and not (wide or claim.get("float_copy")):
            self.notes.append(f"{name} takes {total} bytes, in float it has {floats}")
        return StoredWeight(name, shape, kind, granularity, total, floats)

    def contractions(self) -> tuple[AuditedContraction, ...]:
        rows: list[AuditedContraction] = []
        seen: set[int] = set()
        for claim in self.manifest.get("ops", ()):
            found = self._found(claim)
            seen.update(map(id, found))
            if claim.get("decision") == "float":
                why = claim.get("reason") or ""
                self.float_ops.append(FloatUse(claim["name"], claim["op"], why))
            if claim.get("acc"):
                rows += self._contraction(claim, found)
        for c in self.dump.contractions:
            if id(c) not in seen:
                rows.append(AuditedContraction(c.name, c.op, c.lhs, c.rhs, c.acc))
                if not owners.integer((c.lhs, c.rhs, c.acc)):
                    self.float_ops.append(FloatUse(c.name, c.op, "not part of the plan"))
        return tuple(rows)

    def _found(self, claim: Mapping[str, Any]) -> list[Contraction]:
        names = _names(claim)
        return [c for c in self.dump.contractions if names & set(c.names)]

    def _contraction(
        self, claim: Mapping[str, Any], found: Sequence[Contraction]
    ) -> list[AuditedContraction]:
        meant = _meant(claim)
        shown = self._shown(claim, found) or self._shown_of_equal(claim)
        if shown is None and (
            claim.get("decision") == "float" or claim.get("weight") in self.folded
        ):
            return []  # folded away, or an element-wise product in the end
        if shown is None:
            self.false.append(f"{claim['name']}: the program shows no contraction of that name")
            shown = (UNSEEN,) * 3
        elif claim.get("decision") == "float" and owners.within(
            shown, meant, bool(claim.get("kernel"))
        ):
            pass
        elif not any(owners.as_good(types, meant) for types in (shown, owners.swapped(shown))):
            says = "claimed {} x {} -> {}".format(*meant)
            self.false.append(f"{claim['name']}: {says}, is " + "{} x {} -> {}".format(*shown))
            if owners.integer(meant) and not owners.integer(shown):
                reason = f"the compiler's program computes it in {shown[2]}"
                self.float_ops.append(FloatUse(claim["name"], claim["op"], reason))
        elif meant in (shown, owners.swapped(shown)):
            shown = meant
        kernel, merged = claim.get("kernel") or None, tuple(claim.get("merged_from") or ())
        return [AuditedContraction(claim["name"], claim["op"], *shown, kernel, merged)]

    def _shown_of_equal(self, claim: Mapping[str, Any]) -> tuple[str, str, str] | None:
        """Types of a product with the same weight, which is the same but for its name: where the
        inputs are equal as well, the compiler makes one of them."""
        if not claim.get("weight"):
            return None
        others = [o for o in self.manifest["ops"] if o != claim and _product(o) == _product(claim)]
        return next(filter(None, (self._shown(o, self._found(o)) for o in others)), None)

    def _shown(
        self, claim: Mapping[str, Any], found: Sequence[Contraction]
    ) -> tuple[str, str, str] | None:
        """Types of the largest contraction of that name; in a kernel, of the claimed product."""
        names = _names(claim)
        if claim.get("kernel"):
            products = [
                (p.lhs, p.rhs, p.acc)
                for k in self.dump.kernels
                if names & set(k.names)
                for p in k.products
            ]
            meant = _meant(claim)
            return meant if meant in products else next(iter(products), None)
        if not found:
            return None
        largest = max(found, key=lambda c: (c.work, not owners.integer((c.lhs, c.rhs, c.acc))))
        return largest.lhs, largest.rhs, largest.acc


def _plain(name: str, spec: Mapping[str, Any], found: Sequence[StoredConstant]) -> StoredWeight:
    kind, shape = owners.mlir_name(spec["dtype"]), tuple(spec["shape"])
    total, floats = sum(c.bytes for c in found), math.prod(shape) * bit_width(kind) // 8
    stored = max(found, key=lambda c: c.bytes).dtype if found else kind
    if total < floats and stored != kind:  # a kernel has them in words
        kind = stored if stored == "f16" else "bf16"
    return StoredWeight(name, shape, kind if total else FOLDED, "none", total, floats)


def _names(claim: Mapping[str, Any]) -> set[str]:
    return {claim["name"], *claim.get("merged_from", ())}


def _meant(claim: Mapping[str, Any]) -> tuple[str, str, str]:
    """The types of a product as IREE's program has them: without signs."""
    lhs, rhs, acc = (claim[key].removeprefix("u") for key in ("lhs", "rhs", "acc"))
    return lhs, rhs, acc


def _product(claim: Mapping[str, Any]) -> list[Any]:
    """The common properties of products that may be one."""
    return [claim.get(key) for key in ("op", "weight", "kernel", "lhs", "rhs", "acc")]


def _kind(claim: Mapping[str, Any]) -> tuple[Any, ...]:
    """The common properties of equal weights."""
    parts = {part: (p["dtype"], tuple(p["shape"])) for part, p in claim["parts"].items()}
    return claim["format"], tuple(claim["shape"]), tuple(sorted(parts.items()))
