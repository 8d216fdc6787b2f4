// RUN: mark-edges
// SETTINGS: placement=early
// A product with its bias and its relu is one region; the sum takes wide tensors, the product
// narrow ones; the transpose has no edge of its own.
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32> {jq.weight = "w"}, %b: tensor<4x4xf32> {jq.weight = "b"}) -> tensor<4x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<4x4xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.add %0, %b : tensor<4x4xf32>
  %2 = stablehlo.maximum %1, %zero : tensor<4x4xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %4 = stablehlo.add %3, %x : tensor<4x4xf32>
  %5 = stablehlo.tanh %4 : tensor<4x4xf32>
  return %5 : tensor<4x4xf32>
}
// CHECK: changed: mark-edges
// CHECK-DAG: %[[N:.*]] = stablehlo.composite "jq.edge" %arg0 {composite_attributes = {tensor = "input arg0"}
// CHECK-DAG: %[[I:.*]] = stablehlo.composite "jq.edge" %arg0 {composite_attributes = {tensor = "input arg0#2", wide}
// CHECK: stablehlo.dot_general %[[N]], %arg1
// CHECK-NEXT: stablehlo.add
// CHECK-NEXT: stablehlo.maximum
// CHECK-NEXT: %[[T:.*]] = stablehlo.transpose
// CHECK-NEXT: %[[E:.*]] = stablehlo.composite "jq.edge" %[[T]] {composite_attributes = {tensor = "{{.*}}", wide}
// CHECK-NEXT: %[[S:.*]] = stablehlo.add %[[E]], %[[I]]
// CHECK-NEXT: %[[G:.*]] = stablehlo.composite "jq.edge" %[[S]] {composite_attributes = {tensor = "{{.*}}"}
// CHECK-NEXT: %[[Y:.*]] = stablehlo.tanh %[[G]]
// CHECK-NEXT: %[[O:.*]] = stablehlo.composite "jq.edge" %[[Y]]
// CHECK-NEXT: return %[[O]]
