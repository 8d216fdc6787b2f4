// RUN: widen-floats
// SETTINGS: placement=early
// Weights, constants, regions and results are float32; inputs and outputs keep their types. Bits are
// read from the type that they were written for.
func.func @main(%x: tensor<4xbf16>, %y: tensor<f16>, %w: tensor<4xbf16> {jq.weight = "w"})
    -> (tensor<bf16>, tensor<4xi16>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.5> : tensor<bf16>
  %0 = stablehlo.multiply %x, %w : tensor<4xbf16>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
       : (tensor<4xbf16>, tensor<bf16>) -> tensor<bf16>
  %2 = stablehlo.bitcast_convert %0 : (tensor<4xbf16>) -> tensor<4xi16>
  %3 = stablehlo.convert %y : (tensor<f16>) -> tensor<f32>
  return %1, %2, %3 : tensor<bf16>, tensor<4xi16>, tensor<f32>
}
// CHECK: changed: widen-floats
// CHECK: weight w: float32[4]
// CHECK: @main(%arg0: tensor<4xbf16>, %arg1: tensor<f16>, %arg2: tensor<4xf32>
// CHECK-DAG: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<4xbf16>) -> tensor<4xf32>
// CHECK-DAG: %[[Y:.*]] = stablehlo.convert %arg1 : (tensor<f16>) -> tensor<f32>
// CHECK: %[[P:.*]] = stablehlo.multiply %[[X]], %arg2 {{.*}}tensor<4xf32>
// CHECK: %[[S:.*]] = stablehlo.reduce(%[[P]] init: %{{.*}}) applies stablehlo.add {{.*}} -> tensor<f32>
// CHECK: %[[N:.*]] = stablehlo.convert %[[P]] : (tensor<4xf32>) -> tensor<4xbf16>
// CHECK: %[[B:.*]] = stablehlo.bitcast_convert %[[N]]
// CHECK: %[[R:.*]] = stablehlo.convert %[[S]] : (tensor<f32>) -> tensor<bf16>
// CHECK: return %[[R]], %[[B]], %[[Y]]
