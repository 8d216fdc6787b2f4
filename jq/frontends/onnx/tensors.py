"""Tensors of an ONNX file as NumPy arrays; every claim of the file is checked before memory is."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from jq.base.errors import UserError
from jq.frontends.onnx.graph import INSIDE

_BELOW_BYTE = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4}
_BELOW_BYTE |= {getattr(TensorProto, n): 2 for n in ("INT2", "UINT2") if hasattr(TensorProto, n)}
_LARGEST = 1 << 48  # elements
_WRITTEN_OUT = 1 << 28  # elements of a sparse tensor: a few bytes may claim any number
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def numpy_type(code: int, name: str = "") -> np.dtype[Any]:
    """The NumPy (or ml_dtypes) type of `TensorProto.DataType`."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        raise UserError(f"unknown tensor type {code}", op=name or None) from None


def shape_of(kind: Any) -> list[int | str | None] | None:
    """The shape of an input of that type, where it is known: the size of a dimension, the name of a
    symbolic one, or None for an open one.

    Exporters write an open one as -1 or as `?`, too: names that say nothing about equal sizes."""
    if not kind.tensor_type.HasField("shape"):
        return None
    found: list[int | str | None] = []
    for dim in kind.tensor_type.shape.dim:
        if dim.HasField("dim_value"):
            found.append(dim.dim_value if dim.dim_value >= 0 else None)
        else:
            found.append(None if dim.dim_param in ("", "?", "-1", "None") else dim.dim_param)
    return found


@dataclass(frozen=True)
class Files:
    """The files that may hold tensors: the model's own, and those of the folder that it is in."""

    path: Path

    def array(self, tensor: onnx.TensorProto) -> np.ndarray:
        """The tensor's data: its own memory, or a map of an external file.

        Raises:
            UserError: what the file says of the tensor does not fit together."""
        name, shape = tensor.name or "a constant", tuple(tensor.dims)
        dtype = numpy_type(tensor.data_type, name)
        if any(n < 0 for n in shape):
            raise self._wrong(name, f"shape {shape} has a negative size")
        if math.prod(max(n, 1) for n in shape) > _LARGEST:  # beside a size of 0, too
            raise self._wrong(name, f"shape {shape} is too large")
        bits = _BELOW_BYTE.get(tensor.data_type, dtype.itemsize * 8)
        wanted = math.ceil(math.prod(shape) * bits / 8)
        if tensor.data_location == TensorProto.EXTERNAL:
            raw = self._external(tensor, name, wanted)
            if bits >= 8:
                return raw.view(dtype).reshape(shape)
            unpacked = helper.make_tensor(name, tensor.data_type, shape, raw.tobytes(), raw=True)
            return np.asarray(numpy_helper.to_array(unpacked))
        if tensor.HasField("raw_data"):
            if len(tensor.raw_data) != wanted:
                raise self._sizes(name, len(tensor.raw_data), wanted, shape, dtype)
            if bits >= 8 and not dtype.hasobject:
                return np.frombuffer(tensor.raw_data, dtype).reshape(shape)
        elif not self._holds(tensor, shape, bits):
            held = max(len(getattr(tensor, field)) for field in _FIELDS)
            raise self._sizes(name, held, math.prod(shape), shape, dtype)
        return np.asarray(numpy_helper.to_array(tensor))

    def dense(self, sparse: onnx.SparseTensorProto) -> np.ndarray:
        """A sparse tensor with its zeros. Indices count through the tensor, or along each axis.

        Raises:
            UserError: it is too large to be written out, or its parts do not fit together."""
        name, shape = sparse.values.name or "a sparse constant", tuple(sparse.dims)
        if any(n < 0 for n in shape) or math.prod(shape) > _WRITTEN_OUT:
            raise self._wrong(name, f"shape {shape} is too large for a sparse tensor")
        values, places = self.array(sparse.values), self.array(sparse.indices).astype(np.int64)
        given = (len(values),) if places.ndim == 1 else (len(values), len(shape))
        sizes = np.asarray([math.prod(shape)] if places.ndim == 1 else shape)
        columns = places[:, None] if places.ndim == 1 else places
        if places.shape != given or (places < 0).any() or (columns >= sizes).any():
            raise self._wrong(name, f"its indices are none of shape {shape}")
        found = np.zeros(shape, values.dtype)
        found[np.unravel_index(places, shape) if places.ndim == 1 else tuple(places.T)] = values
        return found

    def _holds(self, tensor: onnx.TensorProto, shape: tuple[int, ...], bits: int) -> bool:
        """True if one of the typed fields has as many numbers as the shape asks for."""
        count = math.prod(shape)
        if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
            count *= 2
        packed = math.ceil(count * bits / 8) if bits < 8 else count
        return any(len(getattr(tensor, field)) in (count, packed) for field in _FIELDS)

    def _external(self, tensor: onnx.TensorProto, name: str, wanted: int) -> np.ndarray:
        said = {entry.key: entry.value for entry in tensor.external_data}
        location = said.get("location", "")
        inside = location == INSIDE
        path = self.path if inside else self._inside_folder(location, name)
        try:
            offset = int(said.get("offset") or 0)
            length = int(said.get("length") or wanted)
            size = path.stat().st_size
        except ValueError:
            raise self._wrong(name, f"offset or length is no number: {said}") from None
        except OSError as error:
            raise self._wrong(name, f"its data file {location}: {error.strerror}") from error
        if length != wanted:
            raise self._wrong(name, f"it says {length} bytes, its shape needs {wanted}")
        if offset < 0 or offset + length > size:
            raise self._wrong(name, f"bytes {offset} to {offset + length} of a file of {size}")
        if not length:
            return np.zeros(0, np.uint8)
        if not inside:
            return np.memmap(path, np.uint8, "r", offset, (length,))
        data = np.empty(length, np.uint8)  # aligned, as the bytes in the file are not
        with path.open("rb") as file:
            file.seek(offset)
            if file.readinto(data.data) != length:
                raise self._wrong(name, "the file changed while it was read")
        return data

    def _inside_folder(self, location: str, name: str) -> Path:
        """The file of external data; only one in or below the folder of the model."""
        folder = self.path.parent.resolve()
        bad = not location or "\0" in location or Path(location).is_absolute()
        path = folder if bad else (folder / location).resolve()
        if bad or not path.is_relative_to(folder):
            reason = f"its data file {location!r} is not in the model's folder"
            linked = not bad and ".." not in Path(location).parts  # as in Hugging Face's cache
            raise self._wrong(name, reason, "copy there what the link leads to" if linked else "")
        if not path.is_file():
            raise self._wrong(name, f"its data file {location!r} is missing")
        return path

    def _wrong(self, name: str, reason: str, hint: str = "") -> UserError:
        hint = hint or "the file is damaged or incomplete: get it again"
        return UserError(f"tensor {name!r}: {reason}", location=str(self.path), hint=hint)

    def _sizes(
        self, name: str, held: int, wanted: int, shape: Iterable[int], dtype: np.dtype[Any]
    ) -> UserError:
        return self._wrong(name, f"{dtype}{list(shape)} needs {wanted}, the file holds {held}")
