"""FlatBuffers by a schema of a few lines: TOSA's and TFLite's files are written and read with it.

    Table: field type, field type, ...

Types are numbers (`i8 u8 i16 i32 u16 u32 i64 u64 f32 bool`), `string`, the name of a table, `union`
(a pair of a table's name and its fields; it takes two slots, its number in front), and vectors of
these, `[i32]`; `[u8:16]` are bytes that begin at a multiple of 16."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from jq.base.errors import UserError

# Numbers of the schema -> those of the package `flatbuffers`, whose methods are called by them.
NUMBERS = {"bool": "Bool", "f32": "Float32"}
NUMBERS |= {f"i{n}": f"Int{n}" for n in (8, 16, 32, 64)}
NUMBERS |= {f"u{n}": f"Uint{n}" for n in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Schema:
    """Tables by name, each its fields and their types in the order of their slots; `unions` are the
    tables that a union's number stands for, from 1 on, by the field's name."""

    tables: Mapping[str, Mapping[str, str]]
    unions: Mapping[str, Sequence[str]]
    identifier: bytes

    @staticmethod
    def of(text: str, unions: Mapping[str, Sequence[str]], identifier: bytes) -> "Schema":
        _, *parts = re.split(r"^\s*(\w+):", text, flags=re.MULTILINE)
        tables = {
            name: dict(field.split() for field in fields.split(",") if field.strip())
            for name, fields in zip(parts[::2], parts[1::2], strict=True)
        }
        return Schema(tables, unions, identifier)

    def encode(self, root: str, fields: Mapping[str, Any]) -> bytes:
        """A file of one table: fields that are not given are left out."""
        import flatbuffers

        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self._table(builder, root, fields), self.identifier)
        return bytes(builder.Output())

    def decode(self, root: str, data: bytes) -> dict[str, Any]:
        """The fields of a file's table that are there, tables within as dictionaries, numbers of
        vectors as arrays; a union is a pair of the table's name (None: unknown) and its fields.

        Raises:
            UserError: it is no such file, or points outside of itself."""
        try:
            if data[4:8] != self.identifier:
                raise ValueError(f"it does not begin as a {self.identifier.decode()} file does")
            return _Reader(self, data).table(root, number(data, "u32", 0))
        except (ValueError, IndexError) as error:
            raise UserError(f"a damaged file: {error}") from error

    def _table(self, builder: Any, name: str, fields: Mapping[str, Any]) -> int:
        kinds = self.tables[name]
        if unknown := fields.keys() - kinds.keys():
            raise KeyError(f"{name} has no field {', '.join(sorted(unknown))}")
        slots = self.slots(kinds)
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
    def slots(kinds: Mapping[str, str]) -> dict[str, int]:
        """The slot of each field of a table."""
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
        dtype = dtype_of(element)
        array = np.ascontiguousarray(value, dtype)
        data = array.tobytes()
        builder.StartVector(dtype.itemsize, array.size, max(align, dtype.itemsize))
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        return int(builder.EndVector())


class _Reader:
    """Reads tables; offsets may lead to one place again and again, so what is read is counted."""

    def __init__(self, schema: Schema, data: bytes) -> None:
        self.schema, self.data = schema, data
        self.left = 4 * len(data) + (1 << 16)

    def count(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ValueError("its parts are many times as large as the file")

    def table(self, name: str, at: int) -> dict[str, Any]:
        kinds, data = self.schema.tables[name], self.data
        vtable = at - number(data, "i32", at)
        size = number(data, "u16", vtable)
        self.count(size + 4)
        fields = {}
        for key, slot in self.schema.slots(kinds).items():
            if 6 + 2 * slot <= size and (to := number(data, "u16", vtable + 4 + 2 * slot)):
                kind = kinds[key]
                if kind == "union":
                    which = number(data, "u16", vtable + 2 + 2 * slot)
                    fields[key] = self.union(key, at + which if which else -1, at + to)
                else:
                    fields[key] = self.value(kind, at + to)
        return fields

    def union(self, key: str, at_number: int, at: int) -> tuple[str | None, dict[str, Any]]:
        which, names = number(self.data, "u8", at_number), self.schema.unions.get(key, ())
        name = names[which - 1] if 0 < which <= len(names) else ""
        return (name, self.table(name, self.there(at))) if name else (None, {})

    def there(self, at: int) -> int:
        """The place that an offset leads to."""
        return at + int(number(self.data, "u32", at))

    def value(self, kind: str, at: int) -> Any:
        if kind in NUMBERS:
            return number(self.data, kind, at)
        at = self.there(at)
        if kind in self.schema.tables:
            return self.table(kind, at)
        length = number(self.data, "u32", at)
        element = "u8" if kind == "string" else kind[1:-1].partition(":")[0]
        if element in NUMBERS:
            dtype = dtype_of(element)
            self.count(length * dtype.itemsize)
            found = np.frombuffer(self.data, dtype, length, at + 4)
            return found.tobytes().decode() if kind == "string" else found
        self.count(4 * length)
        return [self.value(element, at + 4 + 4 * i) for i in range(length)]


@cache
def dtype_of(element: str) -> np.dtype[Any]:
    """NumPy's type of a number of the schema."""
    return np.dtype(NUMBERS[element].lower()).newbyteorder("<")


def number(data: bytes, kind: str, at: int) -> Any:
    """The number at a place in the file; a `ValueError` outside of it."""
    return np.frombuffer(data, dtype_of(kind), 1, at).item()
