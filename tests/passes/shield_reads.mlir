// RUN: shield-reads
// The branch reads what is updated behind it, by way of a view.
func.func @main(%x: tensor<4x8xf32>, %p: tensor<i1>, %u: tensor<1x32xf32>, %i: tensor<i32>)
    -> (tensor<4x8xf32>, tensor<1x32xf32>) {
  %0 = "stablehlo.if"(%p) ({
    %a = stablehlo.add %x, %x : tensor<4x8xf32>
    stablehlo.return %a : tensor<4x8xf32>
  }, {
    stablehlo.return %x : tensor<4x8xf32>
  }) : (tensor<i1>) -> tensor<4x8xf32>
  %1 = stablehlo.reshape %x : (tensor<4x8xf32>) -> tensor<1x32xf32>
  %2 = stablehlo.dynamic_update_slice %1, %u, %i, %i
       : (tensor<1x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<1x32xf32>
  return %0, %2 : tensor<4x8xf32>, tensor<1x32xf32>
}
// CHECK: changed: shield-reads
// CHECK: %[[VIEW:.*]] = stablehlo.reshape %arg0
// CHECK: %[[ALWAYS:[0-9]+]]:2 = stablehlo.optimization_barrier
// CHECK: %[[COPY:.*]] = stablehlo.select %[[ALWAYS]]#0, %[[VIEW]]
// CHECK: dynamic_update_slice %[[COPY]]
