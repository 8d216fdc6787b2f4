"""A target: the compiler's flags, and what the device can do. `targets/<name>.toml`, or a path."""

import re
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from jq.base.errors import UserError
from jq.base.system.files import read_text
from jq.base.system.folders import data_file, data_names
from jq.formats import get_format
from jq.target.compiler_flags import check_file_flags, check_user_flags, combined
from jq.target.device_table import ACTIVATIONS, WEIGHTS, Device, WeightGranularity
from jq.target.hardware import Hardware
from jq.target.rules import validate
from jq.target.settings import FLOAT, Settings, Strict

SCHEMES = ("asymmetric", "symmetric")
Flags = Annotated[tuple[str, ...], AfterValidator(check_file_flags)]


class Target(Strict):
    """The processor or device that a program runs on.

    `product_flags` are added for a program in which nothing is quantized and that is products
    for the most part. Both are flags that choose code and do nothing else
    (`jq.target.compiler_flags`); `with_flags` adds others.

    `programs` names targets of one artifact; the whole is its first, with those as `members`."""

    name: str
    description: str = ""
    driver: Literal["local-task", "local-sync"] = "local-task"
    flags: Flags = ()
    product_flags: Flags = ()
    kernels: str = "none"  # instruction set of our kernels: none, host, or a name
    device: Device = Device()
    hardware: Hardware | None = None
    programs: tuple[str, ...] = ()
    members: "tuple[Target, ...]" = ()

    def each(self) -> "tuple[Target, ...]":
        """The targets that an artifact has programs for."""
        return self.members or (self,)

    def with_flags(self, flags: Sequence[str]) -> "Target":
        """The target with flags that a person gave, in place of its own of the same name."""
        own = combined(self.flags, check_user_flags(flags))
        members = tuple(member.with_flags(flags) for member in self.members)
        return self.model_copy(update={"flags": own, "members": members})

    def weight_granularities(self, kind: str) -> tuple[WeightGranularity, ...]:
        """The granularities of the weights of a kind of op."""
        own = self.device.of(kind).weight_granularities
        return self.device.weight_granularities if own is None else own

    def activation_schemes(self, format: str) -> tuple[str, ...]:
        """The schemes of activations of a format."""
        schemes = self.device.activation_schemes
        zero = self.device.zero_points.get(format) == "zero"
        return tuple(s for s in schemes if s == "symmetric") if zero else schemes

    def adapt(
        self, settings: Settings, explicit: Collection[str], kind: str = ""
    ) -> tuple[Settings, str]:
        """Settings with what the device or the format lacks replaced by the nearest that it has,
        and what was; for a kind of op, with what the device has for that.

        Only where nobody asked for it: keys in `explicit` are left to be declined. Nothing is
        replaced where the device has nothing to offer."""
        device, notes = self.device, []
        tensors = {"weights": settings.weights, "activations": settings.activations}
        schemes = self.activation_schemes(settings.activations.format)
        lists = {
            ("weights", "granularity"): (self.weight_granularities(kind), WEIGHTS),
            ("activations", "granularity"): (device.activation_granularities, ACTIVATIONS),
            ("weights", "scheme"): (device.weight_schemes, SCHEMES),
            ("activations", "scheme"): (schemes, SCHEMES),
        }
        for (side, what), (offered, order) in lists.items():
            tensor = tensors[side]
            wanted = getattr(tensor, what)
            if tensor.format == FLOAT or f"{side}.{what}" in explicit:
                continue
            lacking = f"target {self.name}"
            if what == "scheme" and wanted not in (own := get_format(tensor.format).schemes):
                offered, lacking = tuple(s for s in offered if s in own), tensor.format
            if wanted in offered or wanted not in order:
                continue
            if found := _nearest(wanted, offered, order):
                notes.append(f"{found} {side}: {lacking} has no {wanted} ones")
                tensors[side] = tensor.model_copy(update={what: found})
        return settings.model_copy(update=tensors), "; ".join(notes)


def _nearest(wanted: str, offered: Collection[str], order: Sequence[str]) -> str | None:
    at = order.index(wanted)
    candidates = [*order[at + 1 :], *reversed(order[:at])]
    return next((c for c in candidates if c in offered), None)


TOML_LIMIT, _DEPTH = 4 << 20, 32
_DEEP = re.compile(rf"""(?<![\w-])(?>(?>[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_DEPTH},}}""")


def load_toml(kind: str, name: str) -> tuple[str, dict[str, Any]]:
    """Name and content of `<kind>/<name>.toml`, or of the file that `name` is a path to."""
    path = data_file(kind, name)
    text = read_text(path, TOML_LIMIT)
    try:
        data = tomllib.loads(_plain_toml(text))
    except (tomllib.TOMLDecodeError, RecursionError, OverflowError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else f"{error}"
        raise UserError(f"cannot read {path.name}: {reason:.200}", location=str(path)) from error
    if not data:
        raise UserError(
            f"{path.name} says nothing", location=str(path), hint=f"ours: jaxq list {kind}"
        )
    return path.stem.encode("utf-8", "backslashreplace").decode(), data


def _plain_toml(text: str) -> str:
    """The text, unless keys or brackets nest: the reader takes quadratic time for the first, as
    for numbers, and recurses into the second."""
    if _DEEP.search(text):
        raise ValueError(f"keys of more than {_DEPTH} parts")
    if re.search(r"[0-9a-fA-F_]{400}", text):
        raise ValueError("a number of more than 400 digits")
    if "[" * _DEPTH in text.replace(" ", "") or "{" * _DEPTH in text.replace(" ", ""):
        raise ValueError(f"values of more than {_DEPTH} levels")
    return text


# Instruction sets that are levels, or that a target of another name stands for.
SAME = {
    "avx2": "x86-64-v3",
    "avx512": "x86-64-v4",
    "sse2": "llvm-cpu-generic",
    "aarch64_dotprod": "llvm-cpu-aarch64",
}


def load_target(name: str | Target, readers: tuple[str, ...] = ()) -> Target:
    """A target by name or path, or one of several programs: names by comma.

    Args:
        readers: targets that this one is a program of.

    Raises:
        UserError: there is none of that name, or devices of the several can do different things."""
    if isinstance(name, Target):
        return name
    if "," in (name := str(name)) and not Path(name).exists():
        return _of_several(name, name.split(","), readers)
    if name in readers:
        raise UserError(f"target {name} is a program of itself")
    stem, data = load_toml("targets", SAME.get(name, name))
    found = validate(Target, {"name": stem, **data}, where=f"target {name}")
    return _of_several(found.name, found.programs, (*readers, name)) if found.programs else found


def is_ours(name: str) -> bool:
    """True if a target's name says all about it, whoever reads it elsewhere."""
    ours = {*data_names("targets"), *SAME}
    return all(part.strip() in ours for part in name.split(","))


def _of_several(name: str, names: Sequence[str], readers: tuple[str, ...]) -> Target:
    loaded = (load_target(each, readers) for each in filter(None, map(str.strip, names)))
    members = {member.name: member for one in loaded for member in one.each()}
    if not members:
        raise UserError(f"target {name!r} names no target", hint="write --target NAME,NAME")
    first, *others = members.values()
    for other in others:
        if other.device != first.device:
            what = f"{first.name} and {other.name} are of devices that can do different things"
            raise UserError(what, hint="compile an artifact for each")
    return first.model_copy(
        update={"name": name, "members": (first, *others), "programs": tuple(members)}
    )
