"""The tables of TFLite's flatbuffers, and the numbers of operators and types."""

from jq.frontends.flatbuffer import Schema

# Each operator's number, version and options.
_STRIDES = "padding i8, stride_w i32, stride_h i32"
OPERATORS = {
    "ADD": (0, 2, "AddOptions"),
    "BATCH_MATMUL": (126, 2, "BatchMatMulOptions"),
    "CAST": (53, 1, "CastOptions"),
    "CONCATENATION": (2, 2, "ConcatenationOptions"),
    "CONV_2D": (3, 3, "Conv2DOptions"),
    "DEPTHWISE_CONV_2D": (4, 3, "DepthwiseConv2DOptions"),
    "DEQUANTIZE": (6, 2, "DequantizeOptions"),
    "GATHER": (36, 2, "GatherOptions"),
    "MAXIMUM": (55, 2, "MaximumMinimumOptions"),
    "MAX_POOL_2D": (17, 2, "Pool2DOptions"),
    "MINIMUM": (57, 2, "MaximumMinimumOptions"),
    "MUL": (18, 2, "MulOptions"),
    "PADV2": (60, 2, "PadV2Options"),
    "QUANTIZE": (114, 2, "QuantizeOptions"),
    "REDUCE_MAX": (82, 2, "ReducerOptions"),
    "REDUCE_MIN": (89, 2, "ReducerOptions"),
    "RESHAPE": (22, 1, "ReshapeOptions"),
    "REVERSE_V2": (105, 2, "ReverseV2Options"),
    "SLICE": (65, 2, "SliceOptions"),
    "SUB": (41, 2, "SubOptions"),
    "TILE": (69, 2, "TileOptions"),
    "TRANSPOSE": (39, 2, "TransposeOptions"),
    "TRANSPOSE_CONV": (67, 3, "TransposeConvOptions"),
}
# Those that are read besides.
READ = {number: name for name, (number, *_) in OPERATORS.items()} | {
    1: "AVERAGE_POOL_2D",
    9: "FULLY_CONNECTED",
    14: "LOGISTIC",
    19: "RELU",
    20: "RELU_N1_TO_1",
    21: "RELU6",
    23: "RESIZE_BILINEAR",
    25: "SOFTMAX",
    28: "TANH",
    34: "PAD",
    40: "MEAN",
    42: "DIV",
    43: "SQUEEZE",
    45: "STRIDED_SLICE",
    47: "EXP",
    49: "SPLIT",
    54: "PRELU",
    59: "NEG",
    70: "EXPAND_DIMS",
    74: "SUM",
    75: "SQRT",
    97: "RESIZE_NEAREST_NEIGHBOR",
    98: "LEAKY_RELU",
    101: "ABS",
    111: "ELU",
    117: "HARD_SWISH",
    150: "GELU",
}
_OPTIONS = {
    "Conv2DOptions": (
        1,
        f"{_STRIDES}, activation i8, dilation_w i32, dilation_h i32, quantized_bias_type i8",
    ),
    "DepthwiseConv2DOptions": (
        2,
        f"{_STRIDES}, depth_multiplier i32, activation i8, dilation_w i32, dilation_h i32",
    ),
    "Pool2DOptions": (5, f"{_STRIDES}, filter_width i32, filter_height i32, activation i8"),
    "FullyConnectedOptions": (8, "activation i8, weights_format i8, keep_num_dims bool"),
    "SoftmaxOptions": (9, "beta f32"),
    "ResizeBilinearOptions": (
        15,
        "new_height i32, new_width i32, align_corners bool, half_pixel_centers bool",
    ),
    "DivOptions": (29, "activation i8"),
    "StridedSliceOptions": (
        32,
        "begin_mask i32, end_mask i32, ellipsis_mask i32, new_axis_mask i32, shrink_axis_mask i32",
    ),
    "SplitOptions": (35, "num_splits i32"),
    "ResizeNearestNeighborOptions": (74, "align_corners bool, half_pixel_centers bool"),
    "LeakyReluOptions": (75, "alpha f32"),
    "GeluOptions": (113, "approximate bool"),
    "ConcatenationOptions": (10, "axis i32, activation i8"),
    "AddOptions": (11, "activation i8, pot_scale_int16 bool"),
    "ReshapeOptions": (17, "new_shape [i32]"),
    "MulOptions": (21, "activation i8"),
    "GatherOptions": (23, "axis i32, batch_dims i32"),
    "TransposeOptions": (26, ""),
    "ReducerOptions": (27, "keep_dims bool"),
    "SubOptions": (28, "activation i8, pot_scale_int16 bool"),
    "CastOptions": (37, "in_data_type i8, out_data_type i8"),
    "DequantizeOptions": (38, ""),
    "MaximumMinimumOptions": (39, ""),
    "PadV2Options": (43, ""),
    "SliceOptions": (48, ""),
    "TransposeConvOptions": (49, f"{_STRIDES}, activation i8"),
    "TileOptions": (51, ""),
    "ReverseV2Options": (81, ""),
    "QuantizeOptions": (89, ""),
    "BatchMatMulOptions": (101, "adj_x bool, adj_y bool, asymmetric_quantize_inputs bool"),
}
_NUMBERED = {number: name for name, (number, _) in _OPTIONS.items()}
SCHEMA = Schema.of(
    """
    Model: version u32, operator_codes [OperatorCode], subgraphs [SubGraph], description string,
        buffers [Buffer]
    OperatorCode: deprecated_builtin_code i8, custom_code string, version i32, builtin_code i32
    SubGraph: tensors [Tensor], inputs [i32], outputs [i32], operators [Operator], name string
    Buffer: data [u8:16]
    Tensor: shape [i32], type i8, buffer u32, name string, quantization Quantization
    Quantization: min [f32], max [f32], scale [f32], zero_point [i64], details union, axis i32
    Operator: opcode_index u32, inputs [i32], outputs [i32], builtin_options union
    """
    + "\n".join(f"{name}: {fields}" for name, (_, fields) in _OPTIONS.items()),
    {"builtin_options": [_NUMBERED.get(i + 1, "") for i in range(max(_NUMBERED))]},
    b"TFL3",
)
TYPES = {"float32": 0, "int32": 2, "int16": 7, "int8": 9}
VALID = 1  # the other padding, SAME, is not used: what is padded is written out
RELU = 1
