// RUN: mark-edges
// SETTINGS: placement=early
// A table computes what the device has no op for, but nothing of a shape that it lacks.
func.func @main(%x: tensor<1x4xf32>, %y: tensor<1x1x4xf32>) -> (tensor<1x4xf32>, tensor<1x1x4xf32>) {
  %0 = stablehlo.tanh %x {jq.declined = {help = "", reason = "no tanh"}} : tensor<1x4xf32>
  %1 = stablehlo.tanh %y {jq.declined = {by_shape, help = "", reason = "3 axes"}} : tensor<1x1x4xf32>
  return %0, %1 : tensor<1x4xf32>, tensor<1x1x4xf32>
}
// CHECK: changed: mark-edges
// CHECK: %[[E:.*]] = stablehlo.composite "jq.edge" %arg0
// CHECK: %[[T:.*]] = stablehlo.tanh %[[E]]
// CHECK: %[[O:.*]] = stablehlo.composite "jq.edge" %[[T]]
// CHECK: %[[F:.*]] = stablehlo.tanh
// CHECK: return %[[O]], %[[F]]
