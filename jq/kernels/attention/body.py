"""The body of `Attention`: two dispatches, of which the second has a workgroup a block of rows.
A few rows have a body of their own."""

from iree.compiler import ir
from iree.compiler.dialects import flow

from jq.kernels.attention.amx import TiledHead
from jq.kernels.attention.description import Attention
from jq.kernels.attention.few_rows_body import attend
from jq.kernels.attention.head import Head
from jq.kernels.attention.pack import pack
from jq.kernels.attention.skeleton import HeadPart, over_rows
from jq.kernels.emit.bodies import Operands, emit
from jq.kernels.emit.builder import Builder, Tile
from jq.kernels.emit.values import Values, mlir_type


@emit.register
def emit_attention(kernel: Attention, operands: Operands) -> list[ir.Value]:
    if kernel.few:
        return [flow.tensor_reshape(mlir_type(kernel.results[0]), attend(kernel, operands), [], [])]
    q, k, v, *rest = operands
    packed = zip(pack(kernel, [k, v, *rest[: kernel.skips]]), kernel.packed, strict=True)
    body_of_head = TiledHead if kernel.on_tiles else Head

    def body(b: Builder, tensors: Values, tile: Tile, place: HeadPart) -> None:
        body_of_head(kernel, b, tensors, tile, place).emit(kernel.block)

    return over_rows(kernel, [q, *packed, *rest], kernel.results[0], body)
