// RUN: place-float-types, kernel-floats, kernel-halves
// SETTINGS: op_types=dot_general,convolution weights.format=float activations.format=float float_type=bfloat16
// KERNELS: avx512_bf16
// Numbers of both signs are not in the order of their bits.
func.func @main(%x: tensor<1x8x8x32xf32>, %a: tensor<3x3x32x32xf32> {jq.weight = "a"}, %b: tensor<1x1x32x32xf32> {jq.weight = "b"})
    -> tensor<1x4x4x32xf32> {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.convolution(%x, %a) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, jq.name = "a"}
       : (tensor<1x8x8x32xf32>, tensor<3x3x32x32xf32>) -> tensor<1x8x8x32xf32>

  %2 = "stablehlo.reduce_window"(%0, %least) <{padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>,
      window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %m = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<1x8x8x32xf32>, tensor<f32>) -> tensor<1x4x4x32xf32>
  %3 = stablehlo.convolution(%2, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, jq.name = "b"}
       : (tensor<1x4x4x32xf32>, tensor<1x1x32x32xf32>) -> tensor<1x4x4x32xf32>
  return %3 : tensor<1x4x4x32xf32>
}
// CHECK: changed: place-float-types, kernel-floats
// CHECK-NOT: -> tensor<{{.*}}xi16>
