"""The module attribute `jq.encodings`: how each stored weight is encoded.

    module attributes {jq.encodings = {"dense/kernel" = {format = "int8",
        shape = array<i64: 64, 33>, block = array<i64: 0, 1>, scheme = "symmetric",
        scale_type = "float32", options = {}, parts = ["codes", "scale"],
        tensor = "dense/kernel"}}}

Written from what the program holds. A tensor keeps its entry wherever its parts move: entries
are those of the weights as they are stored, the markers say what has become of each part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlib.mlir import ir

from jq.formats import Encoding
from jq.ir.context import editing
from jq.ir.markers import encoding_attributes, encoding_of
from jq.ir.program import Program

ATTRIBUTE = "jq.encodings"


def write_encodings(program: Program) -> None:
    """Makes the module's attribute say what `program.encodings` says."""
    attributes = program.module.operation.attributes
    with editing():
        entries = {
            name: encoding_attributes(encoding_in(entry), list(entry["parts"]), name)
            for name, entry in program.encodings.items()
        }
        if entries:
            attributes[ATTRIBUTE] = ir.DictAttr.get(entries)
        elif ATTRIBUTE in attributes:
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


def read_encodings(module: ir.Module) -> dict[str, Encoding]:
    """What the module's attribute says; empty when there is none."""
    attributes = module.operation.attributes
    if ATTRIBUTE not in attributes:
        return {}
    return {a.name: encoding_of(ir.DictAttr(a.attr)) for a in ir.DictAttr(attributes[ATTRIBUTE])}
