"""Claims of the manifest, one by one, against what the compiler's program shows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jq.driver.audit import owners
from jq.driver.audit.report import AuditedContraction, FloatUse, StoredWeight
from jq.formats import Format
from jq.iree.dump.reader import Dump
from jq.iree.dump.stored import StoredConstant, bit_width

FOLDED = "folded"  # a weight that went into another constant, or has an equal one
UNSEEN = "?"  # the type of a contraction that the dump does not show
Claim = Mapping[str, Any]


class Claims:
    """One pass over the manifest; `false` collects disagreements, `notes` other warnings, and
    `folded` the weights of which nothing is stored."""

    def __init__(self, manifest: Mapping[str, Any], dump: Dump) -> None:
        self.manifest, self.dump = manifest, dump
        self.ops: Sequence[Claim] = manifest.get("ops", ())
        self.encodings: Mapping[str, Claim] = manifest.get("encodings", {})
        # Of all weights: the encoded ones, then those that stay float.
        self.known = {**self.encodings, **manifest.get("weights", {}), **self.encodings}
        own = {name: name for name in self.known}
        # Kernels store a weight under the name of the op that reads it.
        read_by = {op["name"]: op["weight"] for op in self.ops if op.get("weight") in own}
        self.stored = owners.Owners.of(dump.constants, {**read_by, **own})
        self.splats = owners.Owners.of(dump.splats, {**read_by, **own})
        self.derived = owners.Owners.of(dump.derived, own)
        self.kept = owners.kept_bits(self.ops)
        self.false: list[str] = []
        self.notes: list[str] = []
        self.float_ops: list[FloatUse] = []
        self.folded: set[str] = set()

    def weights(self) -> tuple[StoredWeight, ...]:
        for group in self._merged():
            sizes = {n: math.prod(self.known[n]["shape"]) for n in group}
            self.stored.share(sizes)
            self.splats.share(sizes)
        rows = [
            self._encoded(name, claim)
            if name in self.encodings
            else _plain(name, claim, self.stored.plain(name, claim))
            for name, claim in self.known.items()
        ]
        self._without_evidence()
        return tuple(rows)

    def _without_evidence(self) -> None:
        """A weight of which nothing is stored is what it is claimed to be if an equal one is."""
        stored = [_kind(claim) for name, claim in self.encodings.items() if name not in self.folded]
        for name, claim in self.encodings.items():
            one = math.prod(claim["shape"]) == 1  # a number in the program, no constant
            if name in self.folded and not one and _kind(claim) not in stored:
                what = f"{name} is claimed {claim['format']}"
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

    def _merged(self) -> list[list[str]]:
        """The weights of products that are one, each group once; a float op has its name."""
        ops = {op["name"]: op.get("weight") or op["name"] for op in self.ops}
        groups = {frozenset(_names(op)) for op in self.ops if op.get("merged_from")}
        weights = [
            [owners.weight_of(ops[n], self.known) for n in sorted(g) if n in ops] for g in groups
        ]
        return [[w for w in group if w] for group in weights]

    def _encoded(self, name: str, claim: Claim) -> StoredWeight:
        shape, parts = tuple(claim["shape"]), claim["parts"]
        kind, granularity = claim["format"], claim["granularity"]
        size, kept = math.prod(shape), self.kept.get(name)
        own = owners.code_bits(claim, size)
        codes = Format.registry.get(kind) if "codes" in parts else None
        least = getattr(codes, "bits", math.inf)  # without what pads rows
        bits = min(own, kept or math.inf, least)
        found = self.stored.encoded(name, parts, size)
        if owners.too_little(found, bits, size):  # equal codes are a number in the program
            found += self.splats.encoded(name, parts, size)
        large = [c for c in found if owners.holds(c, size)]
        wide = [c for c in large if bit_width(c.dtype) > own and not (kept and owners.packed(c))]
        if kept and kept > math.ceil(own):
            self.notes.append(
                f"the kernel keeps {kept} bits an element of {name}; {kind} has {own:g}"
            )
        if len(wide) < len(large):  # its codes are there
            wide = [c for c in wide if not owners.by_column(c, parts)]
        if wide and claim.get("float_copy"):
            other = wide.pop().dtype
            self.notes.append(f"{name} is stored in {other} besides: a rule keeps it float")
        if wide:
            self.false.append(f"{name} is claimed {kind} but stored as {wide[0].dtype}")
            kind, granularity = wide[0].dtype, "none"
        elif not found and not any(owners.holds(c, size) for c in self.stored.rest):
            self.folded.add(name)
            kind, granularity = FOLDED, "none"
        elif owners.too_little(found, bits, size):
            self.false.append(f"{name} is claimed {kind} but the program stores no such constant")
        for e in self.dump.expanded:
            mine = any(owners.weight_of(n, {name}) for n in e.names)
            if mine and math.prod(e.shape) >= size > 1:
                self.notes.append(f"{name} is decoded to {e.dtype} in memory at every call")
        for c in self.derived.named[name]:
            if owners.holds(c, size) and bit_width(c.dtype) > bits:
                self.notes.append(f"{name} is expanded to {c.dtype} in memory when loaded")
        floats = size * bit_width(owners.stored_type(claim.get("float_dtype", "float32"))) // 8
        total = sum(c.bytes for c in found)
        if total > floats and not (wide or claim.get("float_copy")):
            self.notes.append(f"{name} takes {total} bytes, in float it has {floats}")
        return StoredWeight(name, shape, kind, granularity, total, floats)

    def contractions(self) -> tuple[AuditedContraction, ...]:
        rows: list[AuditedContraction] = []
        for claim in self.ops:
            if claim.get("decision") == "float":
                why = claim.get("reason") or ""
                self.float_ops.append(FloatUse(claim["name"], claim["op"], why))
            if claim.get("acc"):
                rows += self._contraction(claim)
        claimed = set[str]().union(*map(_names, self.ops))
        for c in self.dump.contractions:
            if claimed.isdisjoint(c.names):
                name = next(iter(c.names), "")
                rows.append(AuditedContraction(name, c.op, *c.types))
                if not owners.integer(c.types):
                    self.float_ops.append(FloatUse(name, c.op, "not part of the plan"))
        return tuple(rows)

    def _contraction(self, claim: Claim) -> list[AuditedContraction]:
        name, op, kernel, meant = claim["name"], claim["op"], claim.get("kernel"), _meant(claim)
        stays_float = claim.get("decision") == "float"
        shown = self._shown(claim) or self._shown_of_equal(claim)
        if shown is None:
            if stays_float or claim.get("weight") in self.folded:
                return []  # folded away, or an element-wise product in the end
            self.false.append(f"{name}: the program shows no contraction of that name")
            shown = (UNSEEN,) * 3
        elif meant in (shown, owners.swapped(shown)):
            shown = meant
        elif not (
            (stays_float and owners.within(shown, meant, bool(kernel)))
            or owners.as_good(shown, meant)
            or owners.as_good(owners.swapped(shown), meant)
        ):
            says = "claimed {} x {} -> {}".format(*meant)
            self.false.append(f"{name}: {says}, is " + "{} x {} -> {}".format(*shown))
            if owners.integer(meant) and not owners.integer(shown):
                reason = f"the compiler's program computes it in {shown[2]}"
                self.float_ops.append(FloatUse(name, op, reason))
        merged = tuple(claim.get("merged_from") or ())
        return [AuditedContraction(name, op, *shown, kernel or None, merged)]

    def _shown_of_equal(self, claim: Claim) -> owners.Types | None:
        """Types of a product with the same weight, which is the same but for its name: where the
        inputs are equal as well, the compiler makes one of them."""
        if not claim.get("weight"):
            return None
        others = [o for o in self.ops if o != claim and _product(o) == _product(claim)]
        return next(filter(None, map(self._shown, others)), None)

    def _shown(self, claim: Claim) -> owners.Types | None:
        """Types of the largest contraction of that name; in a kernel, of the claimed product."""
        names = _names(claim)
        if claim.get("kernel"):
            products = [p for k in self.dump.kernels if names & set(k.names) for p in k.products]
            meant = _meant(claim)
            return meant if meant in products else next(iter(products), None)
        found = [c for c in self.dump.contractions if names & set(c.names)]
        largest = max(found, key=lambda c: (c.work, not owners.integer(c.types)), default=None)
        return largest.types if largest else None


def _plain(name: str, spec: Claim, found: Sequence[StoredConstant]) -> StoredWeight:
    kind, shape = owners.stored_type(spec["dtype"]), tuple(spec["shape"])
    total, floats = sum(c.bytes for c in found), math.prod(shape) * bit_width(kind) // 8
    stored = max(found, key=lambda c: c.bytes).dtype if found else kind
    if total < floats and stored != kind:  # a kernel has them in words
        kind = stored if stored == "f16" else "bf16"
    return StoredWeight(name, shape, kind if total else FOLDED, "none", total, floats)


def _names(claim: Claim) -> set[str]:
    return {claim["name"], *claim.get("merged_from", ())}


def _meant(claim: Claim) -> owners.Types:
    """The types of a product as IREE's program has them: without signs."""
    lhs, rhs, acc = (claim[key].removeprefix("u") for key in ("lhs", "rhs", "acc"))
    return lhs, rhs, acc


def _product(claim: Claim) -> list[Any]:
    """The common properties of products that may be one."""
    return [claim.get(key) for key in ("op", "weight", "kernel", "lhs", "rhs", "acc")]


def _kind(claim: Claim) -> tuple[Any, ...]:
    """The common properties of equal weights."""
    parts = {part: (p["dtype"], tuple(p["shape"])) for part, p in claim["parts"].items()}
    return claim["format"], tuple(claim["shape"]), tuple(sorted(parts.items()))
