"""The body of `QuantizeRows`."""

from iree.compiler import ir

from jq.kernels.emit.bodies import Operands, emit
from jq.kernels.emit.builder import Builder, Tiles
from jq.kernels.emit.values import Index, Values, vec
from jq.kernels.rowwise.quantize_rows import QuantizeRows
from jq.kernels.rowwise.quantizer import RowQuantizer
from jq.kernels.rowwise.row_body import over_rows, row_body
from jq.kernels.schedule.rows import Rows, States, over_row


@row_body.register
def row_body_quantize_rows(
    kernel: QuantizeRows, b: Builder, tensors: Values, tiles: Tiles, rows: Rows
) -> None:
    """One row of the first tensor, to the tiles."""
    (row,), (local,) = rows.at, rows.to
    lanes = kernel.target.lanes
    quantizer = RowQuantizer(b, kernel.scheme, lanes)
    source, *rest = tensors
    factors = rest.pop(0) if kernel.factors else None

    def load(column: Index, valid: int | None) -> ir.Value:
        x = b.load(source, [row, column], vec(lanes, "f32"), valid)
        if factors is None:
            return x
        return b.rounded(b.mul(x, b.load(factors, [column], vec(lanes, "f32"), valid)))

    def include(columns: list[Index], valid: int | None, states: States) -> States:
        pairs = zip(columns, states, strict=True)
        return [quantizer.include(state, load(column, valid)) for column, state in pairs]

    if kernel.scheme.dynamic:
        states = over_row(b, kernel.k, lanes, include, quantizer.start())
        parameters = quantizer.parameters(quantizer.join(states))
    else:
        parameters = quantizer.given(rest)

    def write(columns: list[Index], valid: int | None, states: States) -> States:
        xs = (load(column, valid) for column in columns)  # each right in front of its codes
        quantizer.write(kernel.target, parameters, xs, (tiles[0], local), columns, valid)
        return states

    over_row(b, kernel.k, lanes, write, writes=tiles[:1])
    quantizer.store(parameters, tiles[1:], local)


@emit.register
def emit_quantize_rows(kernel: QuantizeRows, operands: Operands) -> list[ir.Value]:
    return over_rows(kernel, operands)
