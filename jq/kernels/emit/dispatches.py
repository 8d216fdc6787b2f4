"""Puts the body of one workgroup in an executable of the module, and dispatches it; `link` gives
every declared kernel its dispatches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch

from iree.compiler import ir
from iree.compiler.dialects import arith, builtin, flow, func, iree_tensor_ext, tensor

from jq.base.errors import InternalError
from jq.base.registry import import_all
from jq.kernels.emit.builder import Builder, Tile, Tiles
from jq.kernels.emit.values import Indices, Position, Values, element, high, mlir_type
from jq.kernels.kernel import ATTRIBUTE, Kernel
from jq.kernels.tensor import TensorType


@dataclass(frozen=True)
class Output:
    """A result of a dispatch: its whole type, the tile of a workgroup, and where that tile is.
    `into`: the number of the input that the result takes the place of. What no tile covers keeps
    its value; the body does not see this input."""

    whole: TensorType
    tile: tuple[int, ...]
    offsets: Callable[[Builder, Indices], Indices]
    into: int | None = None


def dispatch(
    inputs: Sequence[tuple[ir.Value, TensorType]],
    outputs: Sequence[Output],
    workgroups: Sequence[int],
    body: Callable[[Builder, Indices, Values, Tiles], None],
) -> list[ir.Value]:
    """A dispatch over `workgroups` (x fastest) at the current insertion point; its results.
    `body(builder, workgroup_ids, input_tensors, output_tiles)` emits the work of one workgroup,
    in an executable of the module from the start: calls are copied into their callers, and IREE
    would take a body through every pass once a call."""
    symbol, block = _executable(inputs, outputs, workgroups)
    builder = Builder(block)
    with ir.InsertionPoint(block):
        ids = [
            0 if n == 1 else Position(flow.DispatchWorkgroupIDOp(axis).result, n - 1)
            for axis, n in enumerate(workgroups)
        ]
        arguments, given = list(block.arguments), [o.into for o in outputs]
        tensors = [
            _load_whole(arguments[i], t) for i, (_, t) in enumerate(inputs) if i not in given
        ]
        empty = [tensor.EmptyOp(o.tile, element(o.whole.element)).result for o in outputs]
        tiles = [Tile(value, output.tile) for value, output in zip(empty, outputs, strict=True)]
        body(builder, ids, tensors, tiles)
        left = iter(arguments[len(inputs) :])
        targets = [next(left) if i is None else arguments[i] for i in given]
        for tile, output, target in zip(tiles, outputs, targets, strict=True):
            _store_tile(tile.value, target, output, output.offsets(builder, ids))
        func.ReturnOp([])
    results = [mlir_type(o.whole) for o in outputs]
    values = [value for value, _ in inputs]
    numbers = [ir.IntegerAttr.get(ir.IndexType.get(), -1 if i is None else i) for i in given]
    tied = ir.ArrayAttr.get(numbers) if any(i is not None for i in given) else None
    entries = ir.ArrayAttr.get([ir.SymbolRefAttr.get([symbol, symbol])])
    return list(flow.DispatchOp(results, [], entries, values, [], [], tied_operands=tied).results)


def _executable(
    inputs: Sequence[tuple[ir.Value, TensorType]],
    outputs: Sequence[Output],
    workgroups: Sequence[int],
) -> tuple[str, ir.Block]:
    """A new executable in front of the function that is being built: its symbol, its entry."""
    caller = ir.InsertionPoint.current.block.owner
    module = caller.parent
    symbols = [op.attributes["sym_name"] for op in module.regions[0].blocks[0]]
    taken = {ir.StringAttr(symbol).value for symbol in symbols}
    base = f"{ir.StringAttr(caller.attributes['sym_name']).value}_part"
    symbol = next(name for i in range(len(taken) + 1) if (name := f"{base}{i}") not in taken)
    given = [o.into for o in outputs]
    kinds = [
        _placeholder("readwrite" if i in given else "readonly", t)
        for i, (_, t) in enumerate(inputs)
    ]
    kinds += [_placeholder("writeonly", o.whole) for o in outputs if o.into is None]
    with ir.InsertionPoint(caller):
        executable = flow.ExecutableOp(symbol, sym_visibility="private")
    with ir.InsertionPoint(executable.body.blocks.append()):
        export = flow.ExecutableExportOp(symbol, symbol)
        with ir.InsertionPoint(ir.Block.create_at_start(export.workgroup_count, [])):
            sizes = [*workgroups, *([1] * (3 - len(workgroups)))]
            index = ir.IndexType.get()
            flow.ReturnOp([arith.ConstantOp(index, ir.IntegerAttr.get(index, n)) for n in sizes])
        inner = builtin.ModuleOp()
        flow.ExecutableEndOp()
    with ir.InsertionPoint(inner.body):
        function = func.FuncOp(symbol, (kinds, []))
    return symbol, function.add_entry_block()


def _placeholder(access: str, kind: TensorType) -> ir.Type:
    return ir.Type.parse(f"!iree_tensor_ext.dispatch.tensor<{access}:{mlir_type(kind)}>")


def _load_whole(source: ir.Value, kind: TensorType) -> ir.Value:
    rank = len(kind.shape)
    return iree_tensor_ext.DispatchTensorLoadOp(
        mlir_type(kind), source, [], [], [], [], [0] * rank, list(kind.shape), [1] * rank
    ).result


def _store_tile(value: ir.Value, target: ir.Value, output: Output, offsets: Indices) -> None:
    for offset, size, bound in zip(offsets, output.tile, output.whole.shape, strict=True):
        if high(offset) + size > bound:
            raise InternalError(f"tile {output.tile} leaves {output.whole}")
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    iree_tensor_ext.DispatchTensorStoreOp(
        value,
        target,
        [],
        [o.value for o in offsets if not isinstance(o, int)],
        [],
        [],
        [o if isinstance(o, int) else dynamic for o in offsets],
        list(output.tile),
        [1] * len(output.tile),
    )


# Bodies of descriptions: functions registered for their types.
# @emit.register
# def emit_normalize(kernel: Normalize, operands: Operands) -> list[ir.Value]:
#     ...  # dispatches at the current insertion point
Operand = tuple[ir.Value, TensorType]
Operands = Sequence[Operand]


@singledispatch
def emit(kernel: Kernel, operands: Operands) -> list[ir.Value]:
    """Emits a kernel's dispatches at the current insertion point; its results."""
    raise InternalError(f"kernels of the family {kernel.family!r} have no body")


def link(module: ir.Module) -> None:
    """Fills `func.func private @k(...) attributes {jq.kernel = "..."}` declarations in place, in
    IREE's own context. Raises `InternalError` when a declaration's type is not the kernel's."""
    import_all("jq.kernels")  # a body registers itself by being there
    with module.context, module.operation.location:
        for op in list(module.body.operations):
            if isinstance(op.opview, func.FuncOp) and ATTRIBUTE in op.attributes:
                _define(op.opview)


def _define(declaration: func.FuncOp) -> None:
    kernel = Kernel.from_json(ir.StringAttr(declaration.attributes[ATTRIBUTE]).value)
    operands, results = ([mlir_type(t) for t in ts] for ts in (kernel.operands, kernel.results))
    if declaration.type != (expected := ir.FunctionType.get(operands, results)):
        what = f"kernel is {expected} but declared {declaration.type}"
        raise InternalError(what, op=declaration.name.value)
    entry = declaration.add_entry_block()
    with ir.InsertionPoint(entry):
        func.ReturnOp(emit(kernel, list(zip(entry.arguments, kernel.operands, strict=True))))
    del declaration.attributes[ATTRIBUTE]
