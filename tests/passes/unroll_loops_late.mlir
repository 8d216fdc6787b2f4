// RUN: unroll-loops, rotate-loops
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %r = stablehlo.while(%c = %x) : tensor<f32>
  cond {
    %p = stablehlo.compare LT, %c, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.add %c, %one : tensor<f32>
    stablehlo.return %y : tensor<f32>
  }
  return %r : tensor<f32>
}
// CHECK: changed: none
