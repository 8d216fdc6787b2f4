// RUN: place-weights, lower-contractions, kernel-decode
// SETTINGS: weights.format=int4 weights.granularity=per-block weights.block_size=32 activations.format=float
// KERNELS: avx2
// What follows goes with the product, also where another product reads it.
func.func @main(%x: tensor<16x64xf32>, %w: tensor<64x40xf32> {jq.weight = "w"},
                %v: tensor<40x64xf32> {jq.weight = "v"}) -> tensor<16x64xf32> {
  %b = stablehlo.constant dense<5.000000e-01> : tensor<16x40xf32>
  %z = stablehlo.constant dense<0.000000e+00> : tensor<16x40xf32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<16x64xf32>, tensor<64x40xf32>) -> tensor<16x40xf32>
  %2 = stablehlo.add %1, %b : tensor<16x40xf32>
  %3 = stablehlo.maximum %2, %z : tensor<16x40xf32>
  %4 = stablehlo.dot_general %3, %v, contracting_dims = [1] x [0]
       : (tensor<16x40xf32>, tensor<40x64xf32>) -> tensor<16x64xf32>
  %5 = stablehlo.add %4, %x : tensor<16x64xf32>
  return %5 : tensor<16x64xf32>
}
// CHECK: changed: {{.*}}kernel-decode
// CHECK-NOT: stablehlo.add
// CHECK: %[[Y:[0-9]+]] = call @jq_decode_dot_16x64x40_int4_{{.*}} -> tensor<16x40xf32>
// CHECK-NOT: stablehlo.maximum
// CHECK: call @jq_decode_dot_16x40x64_int4_{{[0-9a-f]+}}(%[[Y]], {{.*}}%arg0)
// CHECK-NOT: stablehlo.add
