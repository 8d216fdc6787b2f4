"""Tools to build a body: a typed builder over IREE's MLIR bindings, and dispatches."""

from jq.kernels.emit.builder import Builder, Tile, Tiles
from jq.kernels.emit.dispatches import Operands, Output, dispatch, emit
from jq.kernels.emit.lanes import Chains, batches, interleave, transpose
from jq.kernels.emit.values import Index, Indices, Values, high, lanes_of, mlir_type, vec
