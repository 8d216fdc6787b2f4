"""`load_onnx`: a file of another framework's model as a `jq.Model`."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jq.base.errors import UserError
from jq.frontends.model import Batches, Model
from jq.frontends.onnx import operators as _  # noqa: F401  (defines them)
from jq.frontends.onnx.graph import File
from jq.frontends.onnx.quantized import small_type, unpacked_fields
from jq.frontends.onnx.read import read_file
from jq.frontends.onnx.registry import MICROSOFT
from jq.frontends.onnx.tensors import numpy_type, open_size
from jq.frontends.onnx.values import Codes, Weight, as_jax, bits_of, offset_of, to_signed
from jq.frontends.onnx.walk import Walk, require_operators
from jq.frontends.tracing.dynamic import no_single_size

log = logging.getLogger("jq")
Sizes = Mapping[str, int | Sequence[int]]
_CHECKED = 1 << 22  # elements of an initializer that are looked at for NaN and infinity


@dataclass(frozen=True)
class Symbol:
    """A dimension that the file leaves open, as `jq.trace` wants it: it gets its value there."""

    name: str

    def _get_vars(self) -> set[str]:
        return {self.name}

    def _evaluate(self, sizes: Mapping[str, int]) -> int:
        return sizes[self.name]

    def __repr__(self) -> str:
        return self.name


def load_onnx(
    path: str | Path,
    sizes: Sizes | None = None,
    values: Mapping[str, Any] | None = None,
    calibration: Batches = None,
) -> Model:
    """The model in an ONNX file.

    Inputs and outputs keep their ONNX names, types and order; the outputs are a dict. Initializers
    are parameters under their names. What the graph computes from shapes is folded when the model
    is traced. Quantization that the file carries is kept.

    Args:
        path: of the `.onnx` file. External data are mapped, from its own folder only.
        sizes: of symbolic dimensions, by name (`{"batch": 8}`; one without a name is
            `input[axis]`), or an input's name and its whole shape. What is left open can be
            given to `jq.trace(model, sizes=...)`.
        values: fixes inputs: `{"sr": 16000}`. They are no inputs of the model any more.
        calibration: as in `jq.Model`.

    Raises:
        UserError: the file is damaged, refers to files outside of its folder, or has operators
            that are not supported (all are named at once); a name is not one of the model's.

    Example:
        ```python
        model = jq.load_onnx("model.onnx", sizes={"batch": 8})
        ```
    """
    path = Path(path)
    file = read_file(path)
    require_operators(file)
    fixed = _fixed(file, values or {})
    inputs = [name for name in file.graph.inputs if name not in fixed]
    shapes = _given_sizes(file, sizes or {}, inputs)
    examples = tuple(_example(file, name, shapes, sizes or {}) for name in inputs)
    weights = {k: v for k, v in file.graph.initializers.items() if _is_weight(v)}

    packed = _packed(file)

    def fn(params: Mapping[str, Any], *arrays: Any) -> dict[str, Any]:
        with jax.enable_x64(True):
            return _outputs(file, params, packed, dict(zip(inputs, arrays, strict=True)) | fixed)

    return Model(
        fn,
        {name: _held(array, packed.get(name, 8)) for name, array in weights.items()},
        examples,
        calibration=calibration,
        name=path.stem,
        input_names=inputs,
        x64=True,
    )


def _packed(file: File) -> dict[str, int]:
    """Bits of the numbers in weights of bytes that hold several each."""
    found = {}
    for node in file.graph.walk():
        at = {"MatMulNBits": 1, "GatherBlockQuantized": 0}.get(node.op)
        bits = node.attributes.get("bits", 4)
        if at is None or node.domain != MICROSOFT or bits not in (2, 4):
            continue
        data = file.graph.initializers.get(node.inputs[at])
        if data is not None and data.dtype == np.uint8:
            found[node.inputs[at]] = bits
    return found


def _outputs(
    file: File, params: Mapping[str, Any], packed: Mapping[str, int], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    walk = Walk(file, lambda text: log.warning("%s", text))
    env: dict[str, Any] = dict(file.graph.initializers)
    for name, traced in params.items():
        data = file.graph.initializers[name]
        kind = small_type(packed[name]) if name in packed else data.dtype
        env[name] = Weight(name, data, Codes(traced, kind) if _as_codes(data) else traced)
    graph = file.graph
    results = walk.run(graph, [inputs[name] for name in graph.inputs], env)
    # JAX sorts the keys of a dict, and leaves those of an ordered one as they are.
    pairs = zip(graph.outputs, results, strict=True)
    return OrderedDict((name, as_jax(value)) for name, value in pairs)


def _is_weight(array: np.ndarray) -> bool:
    """True if the array becomes a parameter. Single numbers, shapes and indices are constants of
    the program, and so is what holds infinities, which is a mask."""
    if (
        array.size < 2
        or array.dtype.hasobject
        or (array.dtype.kind in "iub" and array.itemsize > 2)
    ):
        return False
    if array.dtype.kind == "f" and array.size <= _CHECKED:
        return bool(np.isfinite(array).all())
    return array.dtype != bool


def _as_codes(array: np.ndarray) -> bool:
    return bits_of(array.dtype) < 8 or offset_of(array.dtype) > 0


def _held(array: np.ndarray, bits: int) -> np.ndarray:
    """As a parameter of the program: unsigned numbers and those below a byte as signed codes."""
    if bits < 8:
        return np.asarray(to_signed(unpacked_fields(array, bits).astype(small_type(bits))))
    return np.asarray(to_signed(array)) if _as_codes(array) else array


def _fixed(file: File, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    known = file.graph.inputs
    for name in values:
        if name not in known:
            raise UserError(
                f"the model has no input {name!r}",
                location=str(file.path),
                hint=f"its inputs are {', '.join(known)}",
            )
    return {name: _array(file, name, value) for name, value in values.items()}


def _array(file: File, name: str, value: Any) -> np.ndarray:
    dtype, shape = _declared(file, name)
    try:
        array = np.asarray(value).astype(dtype)
    except (TypeError, ValueError) as error:
        raise UserError(f"value of {name!r}: {error}", location=str(file.path)) from error
    if array.ndim == 0 and shape and all(n in (1, None) or not isinstance(n, int) for n in shape):
        array = array.reshape([1] * len(shape))
    if shape is not None and len(shape) != array.ndim:
        raise UserError(f"value of {name!r} has {array.ndim} axes, the model takes {len(shape)}")
    return array


def _declared(file: File, name: str) -> tuple[np.dtype[Any], list[Any] | None]:
    """Type and shape of an input; a symbolic size is its name, an open one None."""
    kind = file.graph.types[name]
    if not kind.HasField("tensor_type"):
        what = kind.WhichOneof("value") or "nothing"
        raise UserError(f"input {name!r} is no tensor but {what}", location=str(file.path))
    tensor = kind.tensor_type
    dtype = numpy_type(tensor.elem_type, name)
    if dtype.hasobject:
        raise UserError(f"input {name!r} holds strings", location=str(file.path))
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, [open_size(d) for d in tensor.shape.dim]


def _given_sizes(file: File, sizes: Sizes, inputs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Whole shapes by input; every name is checked to be one of the model's."""
    symbols: set[str] = set()
    for name in inputs:
        for axis, n in enumerate(_declared(file, name)[1] or ()):
            if not isinstance(n, int):
                symbols.add(n or f"{name}[{axis}]")
    shapes = {}
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer):
            if name in symbols:
                raise no_single_size(name, size)
            if name not in inputs:
                raise _no_size(file, name, [*symbols, *inputs])
            try:
                shapes[name] = tuple(int(n) for n in size)  # text, from a command line
            except ValueError:
                raise no_single_size(name, "".join(map(str, size))) from None
        elif name not in symbols:
            raise _no_size(file, name, [*symbols])
    return shapes


def _no_size(file: File, name: str, names: Sequence[str]) -> UserError:
    known = ", ".join(sorted(names)) or "none"
    return UserError(
        f"no dimension or input of the model is called {name!r}",
        location=str(file.path),
        hint=f"there are: {known}",
    )


def _example(
    file: File, name: str, shapes: Mapping[str, tuple[int, ...]], sizes: Sizes
) -> jax.ShapeDtypeStruct:
    dtype, declared = _declared(file, name)
    given = shapes.get(name)
    if declared is None and given is None:
        raise UserError(
            f"input {name!r} has no shape",
            location=str(file.path),
            hint=f"give it: sizes={{{name!r}: (1, 3, 224, 224)}}",
        )
    fits = (
        declared is None
        or given is None
        or (
            len(given) == len(declared)
            and all(not isinstance(n, int) or n == g for n, g in zip(declared, given, strict=True))
        )
    )
    if not fits:
        raise UserError(f"input {name!r} has shape {declared}, not {given}")
    shape: list[Any] = []
    for axis, n in enumerate(given or declared or ()):
        symbol = n or f"{name}[{axis}]"
        size = sizes.get(symbol) if isinstance(symbol, str) else symbol
        shape.append(Symbol(symbol) if size is None else size)
    return jax.ShapeDtypeStruct(tuple(shape), dtype)
