// RUN: rotate-loops
// SETTINGS: placement=early
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %r = stablehlo.while(%c = %x) : tensor<f32>
  cond {
    %a = stablehlo.abs %c : tensor<f32>
    %p = stablehlo.compare LT, %a, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.add %c, %one : tensor<f32>
    stablehlo.return %y : tensor<f32>
  }
  return %r : tensor<f32>
}
// CHECK: changed: rotate-loops
// CHECK: %[[A:.*]] = stablehlo.abs %arg0
// CHECK: %[[P:.*]] = stablehlo.compare LT, %[[A]]
// CHECK: stablehlo.while(%[[X:.*]] = %arg0, %[[Q:.*]] = %[[P]])
// CHECK: cond {
// CHECK-NEXT: stablehlo.return %[[Q]]
// CHECK: do {
// CHECK: %[[Y:.*]] = stablehlo.add %[[X]]
// CHECK: %[[B:.*]] = stablehlo.abs %[[Y]]
// CHECK: %[[R:.*]] = stablehlo.compare LT, %[[B]]
// CHECK: stablehlo.return %[[Y]], %[[R]]
