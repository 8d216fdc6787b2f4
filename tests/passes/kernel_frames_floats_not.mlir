// RUN: place-float-types, kernel-floats, kernel-frames
// SETTINGS: op_types=dot_general weights.format=float activations.format=float float_type=float32
// KERNELS: avx512_vnni
// A frame around floats is of zeros: none of -inf for a pool, and none of -0.
func.func @main(%x: tensor<20x64xf32>, %w: tensor<64x32xf32> {jq.weight = "w"}, %v: tensor<64x32xf32> {jq.weight = "v"})
    -> (tensor<1x4x5x32xf32>, tensor<1x6x7x32xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {jq.name = "w"} : (tensor<20x64xf32>, tensor<64x32xf32>) -> tensor<20x32xf32>
  %1 = stablehlo.reshape %0 : (tensor<20x32xf32>) -> tensor<1x4x5x32xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %2 = "stablehlo.reduce_window"(%1, %low) <{padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>,
       window_dimensions = array<i64: 1, 3, 3, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %3 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %3 : tensor<f32>
  }) : (tensor<1x4x5x32xf32>, tensor<f32>) -> tensor<1x4x5x32xf32>
  %4 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] {jq.name = "v"} : (tensor<20x64xf32>, tensor<64x32xf32>) -> tensor<20x32xf32>
  %5 = stablehlo.reshape %4 : (tensor<20x32xf32>) -> tensor<1x4x5x32xf32>
  %c = stablehlo.constant dense<-0.000000e+00> : tensor<f32>
  %6 = stablehlo.pad %5, %c, low = [0, 1, 1, 0], high = [0, 1, 1, 0], interior = [0, 0, 0, 0] : (tensor<1x4x5x32xf32>, tensor<f32>) -> tensor<1x6x7x32xf32>
  return %2, %6 : tensor<1x4x5x32xf32>, tensor<1x6x7x32xf32>
}
// CHECK: changed: place-float-types, kernel-floats{{$}}
// CHECK: padding = dense<{{\[\[}}0, 0], [1, 1], [1, 1], [0, 0]]>
// CHECK: stablehlo.pad
