"""An ONNX file without its large tensors: those stay where they are until they are wanted.

A model in one file holds its weights inside the protobuf message. Parsing that copies them, and
reading each copies them again. So the message is walked once over the mapped file, large `raw_data`
fields are left out, and an external-data entry with the location `INSIDE` says where they are.
"""

from collections.abc import Iterator
from typing import Any

import onnx

from jq.base.errors import UserError

INSIDE = "\0inside"  # no file can have this name
_LARGE = 1 << 14
_RAW, _EXTERNAL, _LOCATION = 9, 13, 14  # fields of TensorProto
_CUT = "cut"
# field number -> what is inside of it, from ModelProto down to `TensorProto.raw_data`
_TENSOR: dict[int, Any] = {_RAW: _CUT}
_MODEL: dict[int, Any] = {7: {5: _TENSOR, 1: {5: {5: _TENSOR}}}}


def without_tensors(data: Any, where: str) -> bytes:
    """The serialized model with large `raw_data` replaced by references into `data`."""
    try:
        return b"".join(_message(data, 0, len(data), _MODEL))
    except (IndexError, ValueError) as error:
        raise UserError(
            f"no ONNX model, or a damaged one: {error}", location=where, hint="export it again"
        ) from None


def _message(data: Any, start: int, end: int, inside: dict[int, Any]) -> Iterator[bytes]:
    """The fields of the message in [start, end), with those in `inside` rewritten."""
    at = kept = start
    cut = False
    while at < end:
        begin = at
        tag, at = _varint(data, at, end)
        field, kind = tag >> 3, tag & 7
        if kind != 2:
            at = _skip(data, at, end, kind)
            continue
        length, at = _varint(data, at, end)
        if at + length > end:
            raise ValueError(f"field {field} at byte {begin} ends after what holds it")
        wanted, body = inside.get(field), at
        at += length
        if wanted is None or (wanted is _CUT and length < _LARGE):
            continue
        yield data[kept:begin]
        kept = at
        if wanted is _CUT:
            yield _reference(body, length)
            cut = True
            continue
        new = b"".join(_message(data, body, at, wanted))
        yield _tagged(field, new)
    yield data[kept:end]
    if cut:  # after all else: the last one counts, and the tensor may say where its data are too
        yield bytes([_LOCATION << 3, onnx.TensorProto.EXTERNAL])


def _skip(data: Any, at: int, end: int, kind: int) -> int:
    if kind == 0:
        return _varint(data, at, end)[1]
    if kind not in (1, 5):
        raise ValueError(f"unknown wire type {kind} at byte {at}")
    at += 8 if kind == 1 else 4
    if at > end:
        raise ValueError(f"byte {at} is after the end")
    return at


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError(f"a number at byte {at} does not end")


def _reference(offset: int, length: int) -> bytes:
    """External-data entries as `TensorProto` holds them."""
    pairs = {"location": INSIDE, "offset": str(offset), "length": str(length)}
    entries = (
        _tagged(_EXTERNAL, _tagged(1, key.encode()) + _tagged(2, value.encode()))
        for key, value in pairs.items()
    )
    return b"".join(entries)


def _tagged(field: int, body: bytes) -> bytes:
    return _number(field << 3 | 2) + _number(len(body)) + body


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
