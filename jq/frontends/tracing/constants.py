"""Large constants of a module become weights, so that they have a name and can be quantized."""

import math
from collections.abc import Callable, Collection

import jax
import numpy as np

from jq.base.errors import InternalError
from jq.base.from_jax import clean_scope, load_by_xla, scope
from jq.base.registry import unused
from jq.ir import Op, bytecode_of, editing, func, ir, is_read, shape_of, to_dtype, walk
from jq.ir.arrays import OPS

# Large arrays of `dense_resource` attributes.
# The bindings write the bytes of such an attribute but do not read them. The StableHLO interpreter
# reads them wrongly without a word, and XLA not at all. MLIR's bytecode has them as they are: in a
# module with a single resource, they end its resource section. Format:
# https://mlir.llvm.org/docs/BytecodeFormat/.
_RESOURCES = 5  # id of the section


def resource_array(attr: ir.Attribute, kind: ir.RankedTensorType) -> np.ndarray:
    """The data of a `dense_resource` attribute of type `kind`, of whole bytes an element."""
    dtype, count = to_dtype(kind.element_type), math.prod(kind.shape)
    with editing():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            ir.Operation.create("stablehlo.constant", results=[kind], attributes={"value": attr})
    section = _section(memoryview(bytecode_of(module)), _RESOURCES)
    size = count * dtype.itemsize
    if len(section) < size:
        raise InternalError(f"{kind} has only {len(section)} bytes of data")
    return np.frombuffer(section, dtype, count, len(section) - size).reshape(kind.shape)


def _section(data: memoryview, wanted: int) -> memoryview:
    """The content of one section of a bytecode file."""
    _, at = _varint(data, 4)  # the version, after the magic number
    at += bytes(data[at : at + 256]).index(0) + 1  # the producer's name
    while at < len(data):
        tag = data[at]
        size, at = _varint(data, at + 1)
        if tag & 0x80:
            alignment, at = _varint(data, at)
            at += -at % alignment
        if tag & 0x7F == wanted:
            return data[at : at + size]
        at += size
    raise InternalError(f"the bytecode has no section {wanted}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number and the position after it: the zeros below the lowest set bit of the first
    byte count the bytes that follow."""
    first = data[at]
    extra = 8 if first == 0 else (first & -first).bit_length() - 1
    if extra == 8:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    raw = int.from_bytes(data[at : at + extra + 1], "little")
    return raw >> (extra + 1), at + extra + 1


MAX_INLINE = 16  # elements; a small table is clearer in the text, and compilers fold it
# Index tables and masks steer other ops; compilers want to see them, unless they are huge.
MAX_INLINE_INTEGERS = 4096


def lift_constants(block: ir.Block, taken: Collection[str]) -> dict[str, np.ndarray]:
    """Turns large constants into arguments appended to `block`; gives their names and data.

    A name is the constant's location, else the scope of the op that reads it with `constant` at its
    end, and is none of those `taken`; equal constants become one."""
    arrays: dict[str, np.ndarray] = {}
    arguments: dict[ir.Attribute, ir.Value] = {}
    _split_complex(block)
    for op in walk(block):
        if op.operation.name != "stablehlo.constant":
            continue
        value, attr = op.results[0], op.attributes["value"]
        if not _is_large(op):
            if not isinstance(attr, ir.DenseElementsAttr):  # XLA and the interpreter read no others
                dense = resource_array(attr, value.type)
                with editing():
                    op.attributes["value"] = ir.DenseElementsAttr.get(dense, type=value.type)
            continue
        if attr not in arguments:
            name = _name(op, {*taken, *arrays})
            arrays[name] = constant_array(attr, value.type)
            with editing():
                arguments[attr] = block.add_argument(value.type, ir.Location.name(name))
        value.replace_all_uses_with(arguments[attr])
        op.erase()
    return arrays


def _split_complex(block: ir.Block) -> None:
    """Complex constants become two real ones: the bindings cannot read them."""
    for op in [op for op in walk(block) if op.operation.name == "stablehlo.constant"]:
        value = op.results[0]
        if not isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType):
            continue
        array = _evaluate(value.type, op.operation.clone)
        with editing(), ir.InsertionPoint(op.operation), op.location:
            parts = [OPS.constant(part) for part in (array.real, array.imag)]
            joined = ir.Operation.create("stablehlo.complex", [value.type], parts)
        value.replace_all_uses_with(joined.result)
        op.erase()


def _is_large(op: Op) -> bool:
    attr, value = op.attributes["value"], op.results[0]
    is_splat = isinstance(attr, ir.DenseElementsAttr) and attr.is_splat
    if is_splat or not is_read(value):  # what has no elements did read it
        return False
    count = int(np.prod(shape_of(value)))
    is_float = isinstance(ir.RankedTensorType(value.type).element_type, ir.FloatType)
    return count > (MAX_INLINE if is_float else MAX_INLINE_INTEGERS)


def _name(op: Op, taken: Collection[str]) -> str:
    base = clean_scope(scope(op.location))
    if not base:
        reader = next(iter(op.results[0].uses)).owner
        parent = clean_scope(scope(reader.location)).rpartition("/")[0]
        base = f"{parent}/constant" if parent else "constant"
    return unused(base, taken.__contains__)


def constant_array(attr: ir.Attribute, kind: ir.Type) -> np.ndarray:
    """The data of a `stablehlo.constant`'s attribute, resource blobs included."""
    tensor = ir.RankedTensorType(kind)
    if not isinstance(attr, ir.DenseElementsAttr):
        return resource_array(attr, tensor)
    if to_dtype(tensor.element_type).isbuiltin == 1:
        return np.asarray(attr)
    constant = {"value": attr}
    return _evaluate(
        tensor, lambda: ir.Operation.create("stablehlo.constant", [kind], [], constant)
    )


def _evaluate(kind: ir.Type, build: Callable[[], ir.Operation]) -> np.ndarray:
    """A constant through XLA: bindings read no complex numbers, bf16, fp8, sub-byte types."""
    with editing():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get([], [kind]))
        with ir.InsertionPoint(main.add_entry_block()):
            func.ReturnOp([build().result])
    compiled = load_by_xla(bytecode_of(module), jax.devices("cpu")[0])
    (result,) = compiled.execute_sharded([]).disassemble_into_single_device_arrays()
    return np.asarray(result[0])
