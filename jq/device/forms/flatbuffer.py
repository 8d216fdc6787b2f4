"""FlatBuffers by a schema of a few lines: TOSA's and TFLite's files are written with it.

    Table: field type, field type, ...

Types are numbers (`i8 u8 i16 i32 u32 i64 u64 f32 bool`), `string`, the name of a table, `union` (a
pair of a table's name and its fields; it takes two slots, its number in front), and vectors of
these, `[i32]`; `[u8:16]` are bytes that begin at a multiple of 16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np

NUMBERS = {
    "bool": "Bool",
    "i8": "Int8",
    "u8": "Uint8",
    "i16": "Int16",
    "i32": "Int32",
    "u32": "Uint32",
    "i64": "Int64",
    "u64": "Uint64",
    "f32": "Float32",
}
_DTYPES = {"bool": "?", "f32": "<f4"}


@dataclass(frozen=True)
class Schema:
    """Tables by name, each its fields and their types in the order of their slots; `unions` are the
    tables that a union's number stands for, from 1 on, by the field's name."""

    tables: Mapping[str, Mapping[str, str]]
    unions: Mapping[str, Sequence[str]]
    identifier: bytes

    @staticmethod
    def of(text: str, unions: Mapping[str, Sequence[str]], identifier: bytes) -> Schema:
        _, *parts = re.split(r"^\s*(\w+):", text, flags=re.MULTILINE)
        tables = {
            name: dict(field.split() for field in fields.split(",") if field.strip())
            for name, fields in zip(parts[::2], parts[1::2], strict=True)
        }
        return Schema(tables, unions, identifier)

    def encode(self, root: str, fields: Mapping[str, Any]) -> bytes:
        """A file of one table: fields that are not given are left out."""
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self._table(builder, root, fields), self.identifier)
        return bytes(builder.Output())

    def _table(self, builder: Any, name: str, fields: Mapping[str, Any]) -> int:
        kinds = self.tables[name]
        if unknown := fields.keys() - kinds.keys():
            raise KeyError(f"{name} has no field {', '.join(sorted(unknown))}")
        slots = self._slots(kinds)
        inner = {k: self._inner(builder, k, kinds[k], v) for k, v in fields.items()}
        builder.StartObject(max(slots.values(), default=-1) + 1)
        for key, value in inner.items():
            kind = kinds[key]
            if kind in NUMBERS:
                getattr(builder, f"Prepend{NUMBERS[kind]}")(value)
                builder.Slot(slots[key])
                continue
            if kind == "union":
                number, value = value
                builder.PrependUint8(number)
                builder.Slot(slots[key] - 1)
            builder.PrependUOffsetTRelative(value)
            builder.Slot(slots[key])
        return int(builder.EndObject())

    @staticmethod
    def _slots(kinds: Mapping[str, str]) -> dict[str, int]:
        slots, at = {}, 0
        for key, kind in kinds.items():
            at += kind == "union"  # its number comes first
            slots[key] = at
            at += 1
        return slots

    def _inner(self, builder: Any, key: str, kind: str, value: Any) -> Any:
        """The value of a table's field: the number itself, or the offset of what is outside."""
        if kind in NUMBERS:
            return value
        if kind == "string":
            return builder.CreateString(value)
        if kind == "union":
            name, fields = value
            return self.unions[key].index(name) + 1, self._table(builder, name, fields)
        if not kind.startswith("["):
            return self._table(builder, kind, value)
        element, _, align = kind[1:-1].partition(":")
        if element in NUMBERS:
            return self._numbers(builder, element, value, int(align or 0))
        offsets = [self._inner(builder, key, element, v) for v in value]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    @staticmethod
    def _numbers(builder: Any, element: str, value: Any, align: int) -> int:
        dtype = np.dtype(_DTYPES.get(element, f"<{element[0]}{int(element[1:] or 8) // 8}"))
        array = np.ascontiguousarray(value, dtype)
        data = array.tobytes()
        builder.StartVector(dtype.itemsize, array.size, max(align, dtype.itemsize))
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        return int(builder.EndVector())
