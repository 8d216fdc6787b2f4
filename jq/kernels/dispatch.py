"""Wraps the body of one workgroup in a dispatch: `flow.dispatch.workgroups`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, flow, iree_tensor_ext, tensor

from jq.errors import InternalError
from jq.kernels.builder import Builder, Tile
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index, Position, element, high


@dataclass(frozen=True)
class Output:
    """A result of a dispatch: its whole type, the tile of a workgroup, and where that tile is."""

    whole: TensorType
    tile: tuple[int, ...]
    offsets: Callable[[Builder, Sequence[Index]], Sequence[Index]]


def dispatch(
    inputs: Sequence[tuple[ir.Value, TensorType]],
    outputs: Sequence[Output],
    workgroups: Sequence[int],
    body: Callable[[Builder, Sequence[Index], Sequence[ir.Value], Sequence[Tile]], None],
) -> list[ir.Value]:
    """A dispatch over `workgroups` (x fastest) at the current insertion point; its results.

    `body(builder, workgroup_ids, input_tensors, output_tiles)` emits the work of one workgroup.
    """
    results = [o.whole.mlir() for o in outputs]
    op = flow.DispatchWorkgroupsOp(results, [], [value for value, _ in inputs], [], [])
    _count(op.workgroup_count, workgroups)
    arguments = [_placeholder("readonly", t) for _, t in inputs]
    arguments += [_placeholder("writeonly", o.whole) for o in outputs]
    block = ir.Block.create_at_start(op.workgroup_body, arguments)
    builder = Builder(block)
    with ir.InsertionPoint(block):
        ids = [
            0 if n == 1 else Position(flow.DispatchWorkgroupIDOp(axis).result, n - 1)
            for axis, n in enumerate(workgroups)
        ]
        tensors = [_load_whole(a, t) for a, (_, t) in zip(block.arguments, inputs, strict=False)]
        tiles = [
            Tile(tensor.EmptyOp(list(o.tile), element(o.whole.element)).result) for o in outputs
        ]
        body(builder, ids, tensors, tiles)
        targets = list(block.arguments)[len(inputs) :]
        for tile, output, target in zip(tiles, outputs, targets, strict=True):
            _store_tile(tile.value, target, output, output.offsets(builder, ids))
        flow.ReturnOp([])
    return list(op.results)


def _count(region: ir.Region, workgroups: Sequence[int]) -> None:
    with ir.InsertionPoint(ir.Block.create_at_start(region, [])):
        sizes = [*workgroups, *([1] * (3 - len(workgroups)))]
        index = ir.IndexType.get()
        flow.ReturnOp([arith.ConstantOp(index, ir.IntegerAttr.get(index, n)) for n in sizes])


def _placeholder(access: str, kind: TensorType) -> ir.Type:
    return ir.Type.parse(f"!iree_tensor_ext.dispatch.tensor<{access}:{kind.mlir()}>")


def _load_whole(source: ir.Value, kind: TensorType) -> ir.Value:
    rank = len(kind.shape)
    return iree_tensor_ext.DispatchTensorLoadOp(
        kind.mlir(), source, [], [], [], [], [0] * rank, list(kind.shape), [1] * rank
    ).result


def _store_tile(
    value: ir.Value, target: ir.Value, output: Output, offsets: Sequence[Index]
) -> None:
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
