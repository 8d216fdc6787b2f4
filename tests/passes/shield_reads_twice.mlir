// RUN: shield-reads
// The compiler computes one of the two sums alone.
func.func @main(%x: tensor<4x8xf32>, %p: tensor<i1>, %u: tensor<1x8xf32>, %i: tensor<i32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %y = stablehlo.add %x, %x : tensor<4x8xf32>
  %0 = "stablehlo.if"(%p) ({
    %a = stablehlo.multiply %y, %y : tensor<4x8xf32>
    stablehlo.return %a : tensor<4x8xf32>
  }, {
    stablehlo.return %y : tensor<4x8xf32>
  }) : (tensor<i1>) -> tensor<4x8xf32>
  %z = stablehlo.add %x, %x : tensor<4x8xf32>
  %1 = stablehlo.dynamic_update_slice %z, %u, %i, %i
       : (tensor<4x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}
// CHECK: changed: shield-reads
// CHECK: %[[COPY:.*]] = stablehlo.select
// CHECK: dynamic_update_slice %[[COPY]]
