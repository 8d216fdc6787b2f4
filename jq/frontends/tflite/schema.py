"""The tables of TFLite's flatbuffers, and the numbers of operators and types."""

import re

from jq.frontends.flatbuffer import Schema

# Each operator's number, version and options; - of those that have none.
_STRIDES = "padding i8, stride_w i32, stride_h i32"
_WRITTEN = """
ADD 0 2 AddOptions, AVERAGE_POOL_2D 1 2 Pool2DOptions, BATCH_MATMUL 126 2 BatchMatMulOptions,
BITCAST 159 1 -, CAST 53 1 CastOptions, CONCATENATION 2 2 ConcatenationOptions,
CONV_2D 3 3 Conv2DOptions, DEPTHWISE_CONV_2D 4 3 DepthwiseConv2DOptions,
DEQUANTIZE 6 2 DequantizeOptions, DIV 42 1 DivOptions, EQUAL 71 1 -, FLOOR 8 1 -, FLOOR_MOD 95 1 -,
FULLY_CONNECTED 9 4 FullyConnectedOptions, GATHER 36 2 GatherOptions, GREATER 61 1 -,
GREATER_EQUAL 62 1 -, LOGICAL_AND 86 1 -, LOGICAL_NOT 87 1 -, LOGICAL_OR 84 1 -,
MAXIMUM 55 2 MaximumMinimumOptions, MAX_POOL_2D 17 2 Pool2DOptions, MEAN 40 2 ReducerOptions,
MINIMUM 57 2 MaximumMinimumOptions, MUL 18 2 MulOptions, NOT_EQUAL 72 1 -, PADV2 60 2 PadV2Options,
QUANTIZE 114 2 QuantizeOptions, REDUCE_MAX 82 2 ReducerOptions, REDUCE_MIN 89 2 ReducerOptions,
RESHAPE 22 1 ReshapeOptions, REVERSE_V2 105 2 ReverseV2Options, RIGHT_SHIFT 161 1 -, ROUND 116 1 -,
SELECT_V2 123 1 -, SLICE 65 2 SliceOptions, SUB 41 2 SubOptions, SUM 74 1 ReducerOptions,
TILE 69 2 TileOptions, TRANSPOSE 39 2 TransposeOptions, TRANSPOSE_CONV 67 3 TransposeConvOptions
"""
OPERATORS = {
    name: (int(number), int(version), options)
    for name, number, version, options in map(str.split, _WRITTEN.split(","))
}
# Those that are read besides.
_OTHERS = """
LOGISTIC 14, RELU 19, RELU_N1_TO_1 20, RELU6 21, RESIZE_BILINEAR 23, SOFTMAX 25, TANH 28, PAD 34,
SQUEEZE 43, STRIDED_SLICE 45, EXP 47, SPLIT 49, PRELU 54, LESS 58, NEG 59, LESS_EQUAL 63, SELECT 64,
SIN 66, EXPAND_DIMS 70, LOG 73, PACK 83, UNPACK 88, SPACE_TO_DEPTH 26, DEPTH_TO_SPACE 5,
BROADCAST_TO 130, SQRT 75, RSQRT 76, SQUARE 92, RESIZE_NEAREST_NEIGHBOR 97, COS 108, LEAKY_RELU 98,
ABS 101, SPLIT_V 102, ELU 111, HARD_SWISH 117, CALL_ONCE 129, VAR_HANDLE 142, READ_VARIABLE 143,
ASSIGN_VARIABLE 144, GELU 150
"""
READ = {number: name for name, (number, *_) in OPERATORS.items()}
READ |= {int(number): name for name, number in map(str.split, _OTHERS.split(","))}
# The number of a table of options, its name and its fields.
_OPTIONS = f"""
    1 Conv2DOptions: {_STRIDES}, activation i8, dilation_w i32, dilation_h i32,
        quantized_bias_type i8
    2 DepthwiseConv2DOptions: {_STRIDES}, depth_multiplier i32, activation i8, dilation_w i32,
        dilation_h i32
    5 Pool2DOptions: {_STRIDES}, filter_width i32, filter_height i32, activation i8
    8 FullyConnectedOptions: activation i8, weights_format i8, keep_num_dims bool
    9 SoftmaxOptions: beta f32
    10 ConcatenationOptions: axis i32, activation i8
    11 AddOptions: activation i8, pot_scale_int16 bool
    15 ResizeBilinearOptions: new_height i32, new_width i32, align_corners bool,
        half_pixel_centers bool
    17 ReshapeOptions: new_shape [i32]
    21 MulOptions: activation i8
    23 GatherOptions: axis i32, batch_dims i32
    26 TransposeOptions:
    27 ReducerOptions: keep_dims bool
    28 SubOptions: activation i8, pot_scale_int16 bool
    29 DivOptions: activation i8
    32 StridedSliceOptions: begin_mask i32, end_mask i32, ellipsis_mask i32, new_axis_mask i32,
        shrink_axis_mask i32
    19 SpaceToDepthOptions: block_size i32
    35 SplitOptions: num_splits i32
    37 CastOptions: in_data_type i8, out_data_type i8
    38 DequantizeOptions:
    39 MaximumMinimumOptions:
    43 PadV2Options:
    48 SliceOptions:
    49 TransposeConvOptions: {_STRIDES}, activation i8
    51 TileOptions:
    59 PackOptions: values_count i32, axis i32
    64 UnpackOptions: num i32, axis i32
    74 ResizeNearestNeighborOptions: align_corners bool, half_pixel_centers bool
    75 LeakyReluOptions: alpha f32
    79 SplitVOptions: num_splits i32
    81 ReverseV2Options:
    89 QuantizeOptions:
    94 DepthToSpaceOptions: block_size i32
    101 BatchMatMulOptions: adj_x bool, adj_y bool, asymmetric_quantize_inputs bool
    103 CallOnceOptions: init_subgraph_index i32
    111 VarHandleOptions: container string, shared_name string
    113 GeluOptions: approximate bool
"""
_NUMBERED = {int(n): name for n, name in re.findall(r"^ +(\d+) (\w+):", _OPTIONS, re.MULTILINE)}
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
    + re.sub(r"^ +\d+ ", "", _OPTIONS, flags=re.MULTILINE),
    {"builtin_options": [_NUMBERED.get(i + 1, "") for i in range(max(_NUMBERED))]},
    b"TFL3",
)
TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}
VALID = 1  # the other padding, SAME, is not used: what is padded is written out
RELU = 1
