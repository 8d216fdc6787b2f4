"""The module attribute `jq.encodings`: how each stored weight is encoded.

    module attributes {jq.encodings = {"dense/kernel" = {format = "int8",
        shape = array<i64: 64, 33>, block = array<i64: 0, 1>, scheme = "symmetric",
        scale_type = "float32", options = {}, parts = ["codes", "scale"],
        tensor = "dense/kernel", sha256 = "2c26b46b..."}}}

Written from what the program holds; `sha256` of the parts where the module holds them itself (as
constants, not as arguments), so that whoever reads it can compare. A tensor keeps its entry
wherever its parts move: entries are those of the weights as they are stored, the markers say what
has become of each part.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.formats import Encoding
from jq.ir.markers import encoding_attributes, encoding_of
from jq.ir.mlir_context import editing
from jq.ir.program import Program

ATTRIBUTE = "jq.encodings"
DIGEST = "sha256"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Listed:
    """An entry of the attribute: the encoding, and the digest of the data where it has one."""

    encoding: Encoding
    digest: str | None = None


def write_encodings(program: Program, data: Mapping[str, Arrays] | None = None) -> None:
    """Makes the module's attribute say what `program.encodings` says.

    Args:
        data: name -> parts of the tensors that the module itself holds.
    """
    attributes = program.module.operation.attributes
    with editing():
        entries = {}
        for name, entry in program.encodings.items():
            described = encoding_attributes(encoding_in(entry), list(entry["parts"]), name)
            if data is not None:
                digest = ir.StringAttr.get(digest_of(data[name]))
                described = ir.DictAttr.get({**_items(described), DIGEST: digest})
            entries[name] = described
        if entries:
            attributes[ATTRIBUTE] = ir.DictAttr.get(entries)
        elif ATTRIBUTE in attributes:
            del attributes[ATTRIBUTE]


def digest_of(parts: Arrays) -> str:
    """SHA-256 of names, types, shapes and bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for name, array in parts.items():
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _items(attributes: ir.DictAttr) -> dict[str, ir.Attribute]:
    return {a.name: a.attr for a in attributes}


def drop_encodings(program: Program) -> None:
    """Takes the attribute away: no dequantize is left that it could be compared with."""
    attributes = program.module.operation.attributes
    if ATTRIBUTE in attributes:
        with editing():
            del attributes[ATTRIBUTE]


def encoding_in(entry: Mapping[str, Any]) -> Encoding:
    """The encoding that an entry of `Program.encodings` describes."""
    return Encoding(
        entry["format"],
        tuple(entry["shape"]),
        tuple(entry["block"]),
        entry["scheme"],
        entry["scale_type"],
        tuple(sorted(entry["options"].items())),
    )


def read_encodings(module: ir.Module) -> dict[str, Listed]:
    """Reads the module's attribute; empty when there is none."""
    attributes = module.operation.attributes
    if ATTRIBUTE not in attributes:
        return {}
    entries = {a.name: ir.DictAttr(a.attr) for a in ir.DictAttr(attributes[ATTRIBUTE])}
    return {
        name: Listed(
            encoding_of(entry),
            ir.StringAttr(entry[DIGEST]).value if DIGEST in entry else None,
        )
        for name, entry in entries.items()
    }
