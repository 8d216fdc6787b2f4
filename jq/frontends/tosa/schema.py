"""The tables of TOSA's flatbuffers, and the numbers of operators, types and modes."""

from jq.frontends.flatbuffer import Schema

# Operators by number, from 1 on; the table of each one's attributes has its name.
_OPERATORS = """
ARGMAX AVG_POOL2D CONV2D CONV3D DEPTHWISE_CONV2D FFT2D MATMUL MAX_POOL2D RFFT2D
TRANSPOSE_CONV2D CLAMP ERF SIGMOID TANH ADD ARITHMETIC_RIGHT_SHIFT BITWISE_AND BITWISE_OR
BITWISE_XOR INTDIV LOGICAL_AND LOGICAL_LEFT_SHIFT LOGICAL_RIGHT_SHIFT LOGICAL_OR LOGICAL_XOR
MAXIMUM MINIMUM MUL POW SUB TABLE ABS BITWISE_NOT CEIL CLZ COS EXP FLOOR LOG LOGICAL_NOT NEGATE
RECIPROCAL RSQRT SIN SELECT EQUAL GREATER GREATER_EQUAL REDUCE_ALL REDUCE_ANY REDUCE_MAX
REDUCE_MIN REDUCE_PRODUCT REDUCE_SUM CONCAT PAD RESHAPE REVERSE SLICE TILE TRANSPOSE GATHER
SCATTER RESIZE CAST RESCALE CONST IDENTITY CUSTOM COND_IF WHILE_LOOP VARIABLE VARIABLE_WRITE
VARIABLE_READ CONST_SHAPE
"""
OPERATORS = _OPERATORS.split()
_WINDOW = "pad [i32], stride [i32], dilation [i32], local_bound bool, acc_type u32"
_WITH_ATTRIBUTES = {
    "CONV2D": _WINDOW,
    "DEPTHWISE_CONV2D": _WINDOW,
    "TRANSPOSE_CONV2D": "out_pad [i32], stride [i32], local_bound bool, acc_type u32",
    "MAX_POOL2D": "kernel [i32], stride [i32], pad [i32], nan_mode u32",
    "CLAMP": "min_val [u8:8], max_val [u8:8], nan_mode u32",
    "ARITHMETIC_RIGHT_SHIFT": "round bool",
    "MAXIMUM": "nan_mode u32",
    "MINIMUM": "nan_mode u32",
    **dict.fromkeys(("REDUCE_SUM", "CONCAT", "REVERSE"), "axis i32"),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN"), "axis i32, nan_mode u32"),
    "TRANSPOSE": "perms [i32]",
    "RESIZE": "mode u32",
    "RESCALE": "scale32 bool, rounding_mode u32, per_channel bool, input_unsigned bool,"
    " output_unsigned bool",
}
SCHEMA = Schema.of(
    """
    Version: major i32, minor i32, patch i32, draft bool
    Tensor: name string, shape [i32], type u32, data [u8:8]
    Shape: name string, rank u32, data [u8:8]
    Operator: op u32, attribute union, inputs [string], outputs [string]
    Block: name string, operators [Operator], tensors [Tensor], inputs [string],
        outputs [string], shapes [Shape]
    Region: name string, blocks [Block]
    Graph: version Version, regions [Region]
    """
    + "\n".join(f"{name}: {_WITH_ATTRIBUTES.get(name, '')}" for name in OPERATORS),
    {"attribute": OPERATORS},
    b"TOSA",
)
TYPES = {"bool": 1, "int4": 2, "int8": 3, "int16": 4, "int32": 5, "int48": 6, "shape": 10}
PROPAGATE = 1  # NaN mode: of integers it means nothing
ROUNDINGS = {"single": 1, "double": 3}
