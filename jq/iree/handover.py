"""From a `Program` to what IREE's compiler reads: weights become constants or parameters.

This happens in IREE's own MLIR context, the only one that has its dialects. Weights never pass
through text: small ones are resources inside the bytecode, large ones stay beside it.

    func @main(%x, %w)            util.global private @w = #flow.parameter.named<"model"::"w">
      dot_general %x, %w    =>    func @main(%x)
                                    %w = util.global.load @w
                                    dot_general %x, %w"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import func, util
from iree.compiler.passmanager import PassManager

from jq.base.errors import CompilerError, InternalError, UserError
from jq.ir import Program, dtype_name, walk
from jq.ir.decisions import DECISIONS
from jq.ir.portable import newest_version
from jq.iree.dump.stored import compiler_context, location_names
from jq.iree.runtime import SCOPE
from jq.kernels.emit.dispatches import link as link_kernels

INLINE_LIMIT = 32 << 20  # bytes of weights that may live inside the module
NAME = "jq.name"
KERNEL = "jq.kernel"
# IREE 3.13 stores a line for every dispatch, and memory that it never wrote where there is none:
# two compiles of the same program would differ. So everything is said to come from a file.
FILE = "model"
# Small constants end up inside dispatches, where IREE 3.13 cannot read bfloat16 resources.
_SMALL = 1024
# Types that IREE takes as they are. All others travel as bytes.
_PLAIN = {"i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"}


@dataclass(frozen=True)
class Handover:
    """The compiler's input, and the runtime's parameters.

    Attributes:
        bytecode: MLIR bytecode with one public function `@main(inputs...)`.
        parameters: key -> array, for `ParameterIndex`; empty when weights are inside the module."""

    bytecode: bytes
    parameters: dict[str, np.ndarray]


def handover(
    program: Program,
    *,
    inline_limit: int = INLINE_LIMIT,
    scope: str = SCOPE,
    link: Callable[[Any], None] = link_kernels,
    key_of: Callable[[str, np.ndarray], str] = lambda name, array: parameter_key(name),
) -> Handover:
    """Weights together below `inline_limit` bytes become constants, else all become parameters.
    `link` gives bodies to the module's kernels (functions declared with the attribute `jq.kernel`);
    it gets the module in IREE's context. `key_of` gives a parameter's key by its name and data."""
    inline = sum(array.nbytes for array in program.weights.values()) < inline_limit
    copy = program.clone()
    copy.run_passes("func.func(stablehlo-legalize-composite-to-call)")
    parameters: dict[str, np.ndarray] = {}
    with compiler_context(), ir.Location.file(FILE, 0, 0) as nowhere:
        module = read_module(copy.bytecode())
        functions = (op for op in module.body.operations if isinstance(op, func.FuncOp))
        main = next(op for op in functions if op.name.value == "main")
        if DECISIONS in main.attributes:  # what we know of a program is no part of it
            del main.attributes[DECISIONS]
        _name_locations(module, nowhere)
        for index, (name, array) in enumerate(program.weights.items()):
            stored = _stored(array)
            value = main.entry_block.arguments[len(program.inputs) + index]
            with ir.Location.name(name), ir.InsertionPoint.at_block_begin(main.entry_block):
                if inline or not array.size:
                    source = _constant(name, stored)
                else:
                    key = key_of(name, stored)
                    parameters[key] = stored
                    source = _parameter(module, index, key, stored, scope)
                value.replace_all_uses_with(_typed(source, value.type))
        _drop_arguments(main, len(program.inputs))
        if any(KERNEL in op.attributes for op in module.body.operations):
            link(module)
        if not module.operation.verify():
            raise InternalError("invalid IR at the hand-over to IREE")
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
    return Handover(buffer.getvalue(), parameters)


def parameter_key(name: str) -> str:
    """A weight's name as a parameter's key: IREE does not escape quotes, so we do (`%22`)."""
    return quote(name, safe=" !#$&'()*+,/:;<=>?@[]^_`{|}~-.")


def read_module(bytecode: bytes) -> ir.Module:
    """The module in IREE's context, whose StableHLO may be older than the one that JAX writes."""
    try:
        return ir.Module.parse(bytecode)
    except ir.MLIRError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise CompilerError(
            f"IREE {version('iree-base-compiler')} cannot read the program, which JAX "
            f"{version('jax')} writes as StableHLO {newest_version()}: {reason}",
            hint="install versions that are tested together (docs/internals/jax.md)",
        ) from error


def _name_locations(module: ir.Module, nowhere: ir.Location) -> None:
    """Attributes of ours do not survive lowering, locations do: they carry the names of ops, and
    nothing else, so that a model traced from another line gives the same bytecode."""
    named = []
    for op in walk(module.body):  # our own name of it, if it has one, and those that JAX gave it
        own = [ir.StringAttr(op.attributes[NAME]).value] if NAME in op.attributes else []
        named.append((op, [*own, *location_names(op.location)]))
    PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
    module.operation.location = nowhere
    for op, names in named:
        location = nowhere
        for name in reversed(names):
            location = ir.Location.name(name, location)
        op.location = location


def _stored(array: np.ndarray) -> np.ndarray:
    """The array as IREE can hold it: types it has no storage for as integers of the same width."""
    name = dtype_name(array.dtype)
    if name in _PLAIN:
        return array  # a deferred one is made when it is written
    if name.startswith("complex"):
        array = np.asarray(array, order="C")
        return array[..., None].view(array.real.dtype)  # real and imaginary parts
    if name in ("i4", "ui4"):
        raise UserError("IREE compiles 4-bit arrays wrongly", hint="pack two values in an int8")
    return np.asarray(array).view(f"i{array.dtype.itemsize}")


def _element(array: np.ndarray) -> ir.Type:
    return ir.RankedTensorType.get(array.shape, ir.Type.parse(dtype_name(array.dtype)))


def _constant(name: str, array: np.ndarray) -> ir.Value:
    # ml_dtypes has no buffer protocol.
    kind, data = _element(array), np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if array.size == 0:
        value = ir.Attribute.parse(f"dense<> : {kind}")
    elif data.nbytes <= _SMALL:
        value = ir.Attribute.parse(f'dense<"0x{data.tobytes().hex()}"> : {kind}')
    else:
        value = ir.DenseResourceElementsAttr.get_from_buffer(data, name, kind)
    return ir.Operation.create("stablehlo.constant", [kind], attributes={"value": value}).result


def _parameter(module: ir.Module, index: int, key: str, array: np.ndarray, scope: str) -> ir.Value:
    kind, symbol = _element(array), f"p{index}"
    with ir.InsertionPoint.at_block_begin(module.body):
        util.GlobalOp(
            symbol,
            kind,
            sym_visibility="private",
            initial_value=ir.Attribute.parse(f'#flow.parameter.named<"{scope}"::"{key}"> : {kind}'),
        )
    return util.GlobalLoadOp(kind, symbol).result


def _typed(value: ir.Value, kind: ir.Type) -> ir.Value:
    """`value` as the type that the program wants, when storage has another one."""
    if value.type == kind:
        return value
    element = str(ir.RankedTensorType(kind).element_type)
    if element.startswith("complex"):  # whose parts lie along the last axis
        return _complex(value, kind)
    name = "convert" if element == "i1" else "bitcast_convert"  # a bool occupies a byte
    return ir.Operation.create(f"stablehlo.{name}", [kind], [value]).result


def _complex(value: ir.Value, kind: ir.Type) -> ir.Value:
    pairs = ir.RankedTensorType(value.type)
    *shape, _ = pairs.shape
    parts = []
    for i in (0, 1):
        bounds = {
            "start_indices": [*[0] * len(shape), i],
            "limit_indices": [*shape, i + 1],
            "strides": [1] * (len(shape) + 1),
        }
        attributes = {k: ir.DenseI64ArrayAttr.get(v) for k, v in bounds.items()}
        part = ir.RankedTensorType.get([*shape, 1], pairs.element_type)
        cut = ir.Operation.create("stablehlo.slice", [part], [value], attributes).result
        flat = ir.RankedTensorType.get(shape, pairs.element_type)
        parts.append(ir.Operation.create("stablehlo.reshape", [flat], [cut]).result)
    return ir.Operation.create("stablehlo.complex", [kind], parts).result


def _drop_arguments(main: Any, keep: int) -> None:
    block = main.entry_block
    while len(block.arguments) > keep:
        block.erase_argument(len(block.arguments) - 1)
    kind = ir.FunctionType.get([a.type for a in block.arguments], main.type.results)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    for name in ("arg_attrs", "res_attrs"):  # IREE reads aliasing requests from these
        if name in main.attributes:
            del main.attributes[name]
