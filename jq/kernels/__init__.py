"""Kernels: hand-written loop nests that take the place of an integer chain in a program."""

from jq.kernels.attention.description import Attention
from jq.kernels.convolution.description import Convolution
from jq.kernels.depthwise.description import Depthwise
from jq.kernels.epilogue.steps import (
    AddCodes,
    Bias,
    Clamp,
    ColumnScale,
    Dequantize,
    Gelu,
    Quantize,
    QuantizedResidual,
    Residual,
    RoundToCodes,
    RowScale,
    Silu,
    Step,
)
from jq.kernels.gemm.description import Gemm
from jq.kernels.gemm.gemm_rows import GemmRows
from jq.kernels.gemm.pack_operand import PackOperand
from jq.kernels.gemv.decode_dot import DecodeDot
from jq.kernels.gemv.description import Gemv
from jq.kernels.integer_attention.description import IntegerAttention
from jq.kernels.kernel import ATTRIBUTE, Kernel
from jq.kernels.machine.isa import ISAS, Isa, available, detect, get_isa
from jq.kernels.rowwise.normalize import Normalize
from jq.kernels.rowwise.quantization import RowQuantization
from jq.kernels.rowwise.quantize_rows import QuantizeRows
from jq.kernels.rowwise.softmax import Softmax
from jq.kernels.rowwise.split_rows import SplitRows
from jq.kernels.schedule.frame import Frame
from jq.kernels.schedule.sequences import Sequences
from jq.kernels.tensor import TensorType

__all__ = [
    "ATTRIBUTE",
    "ISAS",
    "AddCodes",
    "Attention",
    "Bias",
    "Clamp",
    "ColumnScale",
    "Convolution",
    "DecodeDot",
    "Depthwise",
    "Dequantize",
    "Frame",
    "Gelu",
    "Gemm",
    "GemmRows",
    "Gemv",
    "IntegerAttention",
    "Isa",
    "Kernel",
    "Normalize",
    "PackOperand",
    "Quantize",
    "QuantizeRows",
    "QuantizedResidual",
    "Residual",
    "RoundToCodes",
    "RowQuantization",
    "RowScale",
    "Sequences",
    "Silu",
    "Softmax",
    "SplitRows",
    "Step",
    "TensorType",
    "available",
    "detect",
    "get_isa",
]
