"""Kernels: hand-written loop nests that take the place of an integer chain in a program."""

from jq.kernels.attention import Attention
from jq.kernels.codes import AddCodes, Codes
from jq.kernels.convolution import Convolution
from jq.kernels.decode_dot import DecodeDot
from jq.kernels.depthwise import Depthwise
from jq.kernels.epilogue import (
    Bias,
    Clamp,
    ColumnScale,
    Dequantize,
    Gelu,
    Quantize,
    QuantizedResidual,
    Residual,
    RowScale,
    Silu,
    Step,
)
from jq.kernels.frame import Frame
from jq.kernels.gemm import Gemm
from jq.kernels.gemm_rows import GemmRows
from jq.kernels.gemv import Gemv
from jq.kernels.integer_attention import IntegerAttention
from jq.kernels.isa import ISAS, Isa, available, detect, get_isa
from jq.kernels.kernel import ATTRIBUTE, Kernel
from jq.kernels.linking import link
from jq.kernels.normalize import Normalize
from jq.kernels.pack_operand import PackOperand
from jq.kernels.quantization import RowQuantization
from jq.kernels.quantize_rows import QuantizeRows
from jq.kernels.sequences import Sequences
from jq.kernels.softmax import Softmax
from jq.kernels.split_rows import SplitRows
from jq.kernels.tensor import TensorType

__all__ = [
    "ATTRIBUTE",
    "ISAS",
    "AddCodes",
    "Attention",
    "Bias",
    "Clamp",
    "Codes",
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
    "link",
]
