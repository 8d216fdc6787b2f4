// RUN: move-transposes
// Between two convolutions on channels last; only the transpose of what is returned is left.
func.func private @q(%x: tensor<1x4x6x8xf32>, %s: tensor<1x1x1x1xf32>) -> tensor<1x4x6x8xi8> {
  %0 = stablehlo.broadcast_in_dim %s, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xf32>) -> tensor<1x4x6x8xf32>
  %1 = stablehlo.divide %x, %0 : tensor<1x4x6x8xf32>
  %2 = stablehlo.round_nearest_even %1 : tensor<1x4x6x8xf32>
  %3 = stablehlo.convert %2 : (tensor<1x4x6x8xf32>) -> tensor<1x4x6x8xi8>
  return %3 : tensor<1x4x6x8xi8>
}
func.func private @d(%x: tensor<1x4x6x8xi8>, %s: tensor<1x1x1x1xf32>) -> tensor<1x4x6x8xf32> {
  %0 = stablehlo.broadcast_in_dim %s, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xf32>) -> tensor<1x4x6x8xf32>
  %1 = stablehlo.convert %x : (tensor<1x4x6x8xi8>) -> tensor<1x4x6x8xf32>
  %2 = stablehlo.multiply %1, %0 : tensor<1x4x6x8xf32>
  return %2 : tensor<1x4x6x8xf32>
}
func.func @main(%x: tensor<1x6x8x3xf32>, %v: tensor<3x3x3x4xf32> {jq.weight = "v"}, %w: tensor<1x1x4x4xf32> {jq.weight = "w"}, %b: tensor<4xf32> {jq.weight = "b"}) -> tensor<1x4x3x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.constant dense<0.5> : tensor<1x1x1x1xf32>
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x6x8x4xf32>
  %1 = stablehlo.transpose %0, dims = [0, 3, 1, 2] : (tensor<1x6x8x4xf32>) -> tensor<1x4x6x8xf32>
  %2 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<1x4x6x8xf32>
  %3 = stablehlo.add %1, %2 : tensor<1x4x6x8xf32>
  %4 = stablehlo.composite "jq.quantize" %3, %s {composite_attributes = {format = "int8", shape = array<i64: 1, 4, 6, 8>, block = array<i64: 0, 0, 0, 0>, scheme = "symmetric", scale_type = "float32", options = {}, parts = ["scale"], tensor = "t"}, decomposition = @q} : (tensor<1x4x6x8xf32>, tensor<1x1x1x1xf32>) -> tensor<1x4x6x8xi8>
  %5 = stablehlo.composite "jq.dequantize" %4, %s {composite_attributes = {format = "int8", shape = array<i64: 1, 4, 6, 8>, block = array<i64: 0, 0, 0, 0>, scheme = "symmetric", scale_type = "float32", options = {}, parts = ["codes", "scale"], tensor = "t"}, decomposition = @d} : (tensor<1x4x6x8xi8>, tensor<1x1x1x1xf32>) -> tensor<1x4x6x8xf32>
  %6 = "stablehlo.reduce_window"(%5, %zero) ({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %m = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 1, 2, 2>, window_strides = array<i64: 1, 1, 2, 2>} : (tensor<1x4x6x8xf32>, tensor<f32>) -> tensor<1x4x3x4xf32>
  %7 = stablehlo.transpose %6, dims = [0, 2, 3, 1] : (tensor<1x4x3x4xf32>) -> tensor<1x3x4x4xf32>
  %8 = stablehlo.convolution(%7, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x4x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x3x4x4xf32>
  %9 = stablehlo.transpose %8, dims = [0, 3, 1, 2] : (tensor<1x3x4x4xf32>) -> tensor<1x4x3x4xf32>
  return %9 : tensor<1x4x3x4xf32>
}
// CHECK: changed: move-transposes
// CHECK: %[[C:.*]] = stablehlo.convolution
// CHECK-NOT: transpose
// CHECK: stablehlo.broadcast_in_dim %arg3, dims = [3]
// CHECK: "jq.quantize"{{.*}}shape = array<i64: 1, 6, 8, 4>
// CHECK: "jq.dequantize"{{.*}}shape = array<i64: 1, 6, 8, 4>
// CHECK: window_dimensions = array<i64: 1, 2, 2, 1>
// CHECK: %[[L:.*]] = stablehlo.convolution
// CHECK: stablehlo.transpose %[[L]], dims = [0, 3, 1, 2]
