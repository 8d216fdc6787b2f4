// RUN: plain-windows
func.func @main(%x: tensor<2x4x3x8xf32>) -> tensor<2x2x1x8xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %c) <{window_dimensions = array<i64: 1, 2, 2, 1>,
      window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) : (tensor<2x4x3x8xf32>, tensor<f32>) -> tensor<2x2x1x8xf32>
  return %0 : tensor<2x2x1x8xf32>
}
// CHECK: [[X:%[0-9]+]] = stablehlo.pad %arg0, {{.*}}, low = [0, 0, 0, 0], high = [0, 0, -1, 0]
// CHECK: reduce_window"([[X]]
