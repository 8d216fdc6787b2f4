// RUN: shield-reads
// It is updated before the branch reads it, and nothing else reads what is updated behind.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %p: tensor<i1>, %u: tensor<1x8xf32>,
                %i: tensor<i32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = stablehlo.dynamic_update_slice %x, %u, %i, %i
       : (tensor<4x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
  %1 = "stablehlo.if"(%p) ({
    %a = stablehlo.add %x, %x : tensor<4x8xf32>
    stablehlo.return %a : tensor<4x8xf32>
  }, {
    stablehlo.return %x : tensor<4x8xf32>
  }) : (tensor<i1>) -> tensor<4x8xf32>
  %2 = stablehlo.dynamic_update_slice %y, %u, %i, %i
       : (tensor<4x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
  return %0, %1, %2 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
// CHECK: changed: none
