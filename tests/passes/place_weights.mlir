// RUN: place-weights
// SETTINGS: weights.format=int8 activations.format=float min_elements=64
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x16xf32> {jq.weight = "dense"},
                %b: tensor<16x2xf32> {jq.weight = "small"}) -> tensor<4x2xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %1 = stablehlo.dot_general %0, %b, contracting_dims = [1] x [0]
       : (tensor<4x16xf32>, tensor<16x2xf32>) -> tensor<4x2xf32>
  return %1 : tensor<4x2xf32>
}
// CHECK: changed: place-weights
// CHECK: weight small: float32[16, 2]
// CHECK: weight dense:codes: int8[8, 16]
// CHECK: weight dense:scale: float32[1, 16]
// CHECK: [[W:%[0-9]+]] = stablehlo.composite "jq.dequantize" %arg2, %arg3 {{.*}} -> tensor<8x16xf32>
// CHECK-NEXT: dot_general %arg0, [[W]]
// CHECK-NEXT: dot_general {{%[0-9]+}}, %arg1
