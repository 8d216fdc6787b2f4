"""Stored weights of a module that this compiler wrote: found again, and checked.

The module's attribute `jq.encodings` lists them; each is a `jq.dequantize` of constants. Encoding,
types, shapes and data must be those that are listed, and no weight may decode to NaN or infinity.
"""

import numpy as np

from jq.base.errors import UserError
from jq.formats import Encoding, get_format
from jq.frontends.tracing.constants import constant_array
from jq.ir import Program, at, dtype_of, ir, maker
from jq.ir.build import replace
from jq.ir.encodings import Arrays, Listed, describe, digest_of, write_encodings
from jq.ir.markers import DEQUANTIZE, Marker, dequantize, match


def restore_stored(program: Program, listed: dict[str, Listed]) -> None:
    """Makes the parts of every stored weight weights of the program.

    Raises:
        UserError: the list and the data do not agree.
    """
    missing = dict(listed)
    for op in list(program.walk()):
        marker = match(op, DEQUANTIZE)
        if marker is None:
            continue
        name = marker.tensor
        if name not in listed and any(_data(program, v) is None for v in marker.parts.values()):
            continue  # codes that the program computes: an activation
        if name not in listed or listed[name].encoding != marker.encoding:
            raise _wrong(name, "the module does not list it as it is encoded")
        missing.pop(name, None)
        arrays = _checked_parts(program, marker)
        _check_data(name, marker.encoding, arrays, listed[name].digest)
        with at(op):
            parts = {k: program.add_weight(f"{name}:{k}", v) for k, v in arrays.items()}
            dtype = dtype_of(op.results[0])
            value = dequantize(program, marker.encoding, parts, dtype, tensor=name)
        replace(op, [value])
        program.encodings[name] = describe(marker.encoding, arrays, dtype)
    if missing:
        raise _wrong(min(missing), "the module lists it but does not hold it")
    _drop_old(program)
    program.drop_unused_weights()
    write_encodings(program)


def _check_data(name: str, enc: Encoding, arrays: Arrays, digest: str | None) -> None:
    if digest is not None and digest_of(arrays) != digest:
        raise _wrong(name, "its data are not those that the module lists (sha256 differs)")
    if not np.isfinite(get_format(enc.format).to_numpy(arrays, enc)).all():
        raise _wrong(name, "it decodes to NaN or infinity")


def _checked_parts(program: Program, marker: Marker) -> dict[str, np.ndarray]:
    fmt, enc = get_format(marker.encoding.format), marker.encoding
    fmt.check(enc)
    arrays = {name: _data(program, value) for name, value in marker.parts.items()}
    expected = fmt.storage(enc)
    for name, (shape, dtype) in expected.items():
        array = arrays.get(name)
        if array is None or (array.shape, array.dtype) != (shape, dtype):
            has = "missing or computed" if array is None else f"{array.dtype}{list(array.shape)}"
            raise _wrong(marker.tensor, f"{name} is {has}, {enc.format} needs {dtype}{list(shape)}")
    return {name: np.ascontiguousarray(arrays[name]) for name in expected}


def _data(program: Program, value: ir.Value) -> np.ndarray | None:
    """The array of a weight or constant; None for anything else."""
    name = program.weight_name(value)
    if name is not None:
        return program.weights[name]
    owner = maker(value, "stablehlo.constant")
    if owner is None:
        return None
    return constant_array(owner.attributes["value"], value.type)


def _drop_old(program: Program) -> None:
    """Erases the decompositions that came with the module and serve no marker any more."""
    used = {
        ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
        for op in program.walk()
        if op.operation.name == "stablehlo.composite"
    }
    for op in list(program.module.body.operations):
        name = ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""
        if name.startswith(DEQUANTIZE) and name not in used:
            op.erase()


def _wrong(name: str, reason: str) -> UserError:
    return UserError(f"the encoding of a stored weight is wrong: {reason}", op=name)
