// RUN: place-edges, carry-codes
// SETTINGS: activations.format=int8 activations.mode=static activations.granularity=per-tensor weights.format=float
// RANGES: start:0=-1,1
// RANGES: next:0=-1,2
// What the loop carries has the range of both.
func.func private @e(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %e = stablehlo.composite "jq.edge" %x {composite_attributes = {carried, tensor = "start"}, decomposition = @e} : (tensor<4xf32>) -> tensor<4xf32>
  %r:2 = stablehlo.while(%i = %zero, %c = %e) : tensor<i32>, tensor<4xf32>
  cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.tanh %c : tensor<4xf32>
    %f = stablehlo.composite "jq.edge" %y {composite_attributes = {carried, tensor = "next"}, decomposition = @e} : (tensor<4xf32>) -> tensor<4xf32>
    %k = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %k, %f : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
// CHECK: changed: place-edges, carry-codes
// CHECK: %[[S:.*]] = stablehlo.constant dense<0.0117647061> : tensor<1xf32>
// CHECK: %[[Q:.*]] = stablehlo.composite "jq.quantize" %arg0
// CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %[[C:.*]] = %[[Q]]) : tensor<i32>, tensor<4xi8>
// CHECK: do {
// CHECK: stablehlo.composite "jq.dequantize" %[[C]]
// CHECK: stablehlo.tanh
// CHECK: %[[R:.*]] = stablehlo.composite "jq.quantize"
// CHECK: stablehlo.return %{{.*}}, %[[R]]
// CHECK: }
// CHECK: %[[D:.*]] = stablehlo.composite "jq.dequantize" %{{.*}}#1
// CHECK: return %[[D]]
