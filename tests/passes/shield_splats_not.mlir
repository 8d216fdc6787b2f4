// RUN: shield-splats
// No loop reads it, and what is no call may read it anywhere.
func.func private @kernel(tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %c = stablehlo.constant dense<5.0> : tensor<2xf32>
  %0 = func.call @kernel(%x, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = func.call @kernel(%0, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %2 = stablehlo.while(%y = %1) : tensor<2xf32>
    cond {
      %t = stablehlo.constant dense<false> : tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      %z = stablehlo.add %y, %c : tensor<2xf32>
      stablehlo.return %z : tensor<2xf32>
    }
  return %2 : tensor<2xf32>
}
// CHECK: changed: none
