"""Kernels: hand-written loop nests that take the place of an integer chain in a program."""

from jq.kernels.attention.description import Attention
from jq.kernels.convolution.description import Convolution, DigitConvolution
from jq.kernels.convolution.windowed import PairConvolution
from jq.kernels.convolution.winograd import Winograd
from jq.kernels.depthwise.description import Depthwise, DigitDepthwise
from jq.kernels.epilogue.code_steps import AddCodes, Quantize, Rescale, RoundToCodes, WideQuantize
from jq.kernels.epilogue.step import ROW, Step
from jq.kernels.epilogue.steps import (
    Bias,
    Clamp,
    ColumnScale,
    Dequantize,
    FakeQuantize,
    Gelu,
    HalfResidual,
    JoinDigits,
    QuantizedResidual,
    Residual,
    RoundToHalves,
    Scale,
    Silu,
    WideResidual,
    ZeroPoint,
)
from jq.kernels.gemm.description import DigitGemm, Gemm, RegisterTile, Streams
from jq.kernels.gemm.pack_values import PackValues
from jq.kernels.gemm.pair_product import PairGemm
from jq.kernels.gemm.product import Product
from jq.kernels.gemv.decode_dot import DecodeDot
from jq.kernels.gemv.description import Gemv
from jq.kernels.integer_attention.description import IntegerAttention
from jq.kernels.kernel import ATTRIBUTE, Kernel
from jq.kernels.machine.isa import ISAS, Isa, available, detect, get_isa
from jq.kernels.rowwise.description import Normalize, QuantizeRows, RowQuantization, RowRanges
from jq.kernels.rowwise.quantize_blocks import QuantizeBlocks
from jq.kernels.rowwise.row_chain import SplitRows
from jq.kernels.rowwise.row_program import Line, RowProgram, Source
from jq.kernels.rowwise.update_rows import UpdateRows
from jq.kernels.schedule.layout import Batch, Sequences
from jq.kernels.tensor import TensorType
