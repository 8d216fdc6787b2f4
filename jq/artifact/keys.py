"""Digests of values, of programs, and of this package with all that computes for it."""

import hashlib
from collections.abc import Mapping, Sequence, Set
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from jq.base.system.files import check_input, damaged, sha256

if TYPE_CHECKING:  # a process that generates text does not load it
    from jq.ir import Program

_PACKAGES = "jax jaxlib ml_dtypes numpy scipy iree-base-compiler iree-base-runtime"


class StoredFile(BaseModel):
    """A file of a compiled model, as its manifest lists it."""

    model_config = ConfigDict(frozen=True)

    bytes: Annotated[int, Field(ge=0, le=1 << 62)]
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Self:
        return cls(bytes=path.stat().st_size, sha256=sha256(path))

    def check(self, path: Path) -> None:
        """Refuses a link, and a file of another size or content."""
        if path.is_symlink():
            raise damaged(path, "it is a link to somewhere else")
        if (found := check_input(path)) != self.bytes:
            raise damaged(path, f"{found} bytes instead of {self.bytes}")
        if sha256(path) != self.sha256:
            raise damaged(path, "its checksum differs")


def digest(*values: Any) -> str:
    """SHA-256 of None, numbers, texts, bytes, arrays, and sequences, sets and mappings of these:
    the same for equal values of equal types in equal order, and for no others."""
    found = hashlib.sha256()
    _add(found, values)
    return found.hexdigest()


def _add(found: "hashlib._Hash", value: Any) -> None:
    if value is None or isinstance(value, bool | int | float):
        found.update(f"{type(value).__name__} {value!r};".encode())
    elif isinstance(value, str | bytes):
        content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        found.update(f"{type(value).__name__} {len(content)};".encode())
        found.update(content)
    elif isinstance(value, Mapping | Set | Sequence):
        kind, parts = "list", list(value)
        if isinstance(value, Mapping):
            kind, parts = "map", [part for item in value.items() for part in item]
        elif isinstance(value, Set):
            kind, parts = "set", sorted(map(digest, value))
        found.update(f"{kind} {len(parts)};".encode())
        for part in parts:
            _add(found, part)
    else:
        array = np.asarray(value)
        found.update(f"{array.dtype.name}{array.shape};".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def program_digest(program: "Program") -> str:
    """The digest of a program's text and of its weights: the same wherever it was traced from."""
    return digest(program.text(whole=True), program.weights)


@cache
def versions() -> list[str]:
    """The versions of the packages that compute, and a digest of this package's own files."""
    own = Path(__file__).parents[1]
    files = [p for p in sorted(own.rglob("*")) if p.is_file() and p.suffix != ".pyc"]
    code = digest([(str(p.relative_to(own)), p.read_bytes()) for p in files])
    return [*map(version_of, _PACKAGES.split()), code]


def version_of(package: str, missing: str = "") -> str:
    """The version of a package; `missing` where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return missing
