// RUN: place-weights, place-activations, lower-contractions, lower-markers
// SETTINGS: weights.format=int8 activations.format=int8 activations.scheme=symmetric
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// CHECK: changed: place-weights, place-activations, lower-contractions, lower-markers
// CHECK-NOT: composite
// CHECK: [[A:%[0-9]+]] = stablehlo.dot_general {{.*}} : (tensor<4x8xi8>, tensor<8x3xi8>) -> tensor<4x3xi32>
// CHECK: [[F:%[0-9]+]] = stablehlo.multiply {{.*}} : tensor<4x3xf32>
// CHECK-NEXT: [[C:%[0-9]+]] = stablehlo.convert [[A]]
// CHECK-NEXT: [[Y:%[0-9]+]] = stablehlo.multiply [[C]], [[F]]
// CHECK-NEXT: return [[Y]]
// CHECK-NOT: func.func private
