"""`load_onnx`: a file of another framework's model as a `jq.Model`.

Files from anybody are read in a process of their own first (`jq.base.guard`), the whole way to a
program. What crashes, never ends or fills the memory there is one error here."""

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jq.base import LOG, as_path, check_input
from jq.base.guard.worker import WORKER
from jq.frontends.model import Batches, Model
from jq.frontends.onnx.describe import describe_onnx
from jq.frontends.onnx.given_inputs import Sizes, example, fixed_inputs, given_sizes
from jq.frontends.onnx.graph import File
from jq.frontends.onnx.quantized import small_type, unpacked_fields
from jq.frontends.onnx.read import read_file
from jq.frontends.onnx.registry import MICROSOFT
from jq.frontends.onnx.values import Codes, Weight, as_jax, bits_of, offset_of, to_signed
from jq.frontends.onnx.walk import Walk, require_operators
from jq.frontends.tracing.entry import trace

_CHECKED = 1 << 22  # elements of an initializer that are looked at for NaN and infinity


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
        ```"""
    path = as_path(path)
    file = read_file(path)
    require_operators(file)
    fixed = fixed_inputs(file, values or {})
    inputs = [name for name in file.graph.inputs if name not in fixed]
    shapes = given_sizes(file, sizes or {}, inputs)
    examples = tuple(example(file, name, shapes, sizes or {}) for name in inputs)
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
    walk = Walk(file, lambda text: LOG.warning("%s", text))
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
    counts = array.dtype.kind in "iub" and array.itemsize > 2
    if counts or array.size < 2 or array.dtype.hasobject:
        return False
    if array.dtype.kind == "f" and array.size <= _CHECKED:
        return bool(np.isfinite(array).all())
    return array.dtype != bool


def _as_codes(array: np.ndarray) -> bool:
    return bits_of(array.dtype) < 8 or offset_of(array.dtype) > 0


def _held(array: np.ndarray, bits: int) -> np.ndarray:
    """A parameter of the program: unsigned numbers and those below a byte as signed codes."""
    if bits < 8:
        return np.asarray(to_signed(unpacked_fields(array, bits).astype(small_type(bits))))
    return np.asarray(to_signed(array)) if _as_codes(array) else array


def load_checked(
    path: Path, sizes: Sizes | None = None, values: Mapping[str, Any] | None = None
) -> Model:
    """`load_onnx` of a file that was read, and traced, without harm."""
    _ask(try_load, path, sizes=dict(sizes or {}), values=dict(values or {}))
    return load_onnx(path, sizes, values)


def describe_checked(path: Path) -> dict[str, Any]:
    """`describe_onnx`, as the other process says."""
    return _ask(try_describe, path)


def _ask(function: Any, path: Path, **arguments: Any) -> Any:
    check_input(path)
    # Tensors may lie in any of the files beside it.
    size = sum(each.stat().st_size for each in path.parent.iterdir() if each.is_file())
    name = f"{__name__}:{function.__name__}"
    return WORKER.ask(name, b"", str(path), size=size, path=str(path.resolve()), **arguments)


def try_load(_: bytes, path: str, sizes: dict[str, Any], values: dict[str, Any]) -> None:
    trace(load_onnx(path, sizes, values))


def try_describe(_: bytes, path: str) -> dict[str, Any]:
    return describe_onnx(path)
