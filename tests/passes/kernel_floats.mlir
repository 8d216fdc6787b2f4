// RUN: place-float-types, kernel-floats, kernel-merge
// SETTINGS: op_types=dot_general,convolution weights.format=float activations.format=float float_type=bfloat16
// KERNELS: avx512_vnni
// The kernel rounds its rows, adds the bias, and multiplies both weights at once.
func.func @main(%x: tensor<2x4x64xf32>, %i: tensor<1x8x8x16xf32>, %w: tensor<64x32xf32> {jq.weight = "w"},
                %v: tensor<64x16xf32> {jq.weight = "v"}, %f: tensor<3x3x16x24xf32> {jq.weight = "f"})
    -> (tensor<2x4x32xf32>, tensor<2x4x16xf32>, tensor<1x8x8x24xf32>) {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
       : (tensor<2x4x64xf32>, tensor<64x32xf32>) -> tensor<2x4x32xf32>
  %2 = stablehlo.dot_general %x, %v, contracting_dims = [2] x [0]
       : (tensor<2x4x64xf32>, tensor<64x16xf32>) -> tensor<2x4x16xf32>
  %3 = stablehlo.sign %1 : tensor<2x4x32xf32>
  %4 = stablehlo.sign %2 : tensor<2x4x16xf32>
  %5 = stablehlo.convolution(%i, %f) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x8x16xf32>, tensor<3x3x16x24xf32>) -> tensor<1x8x8x24xf32>
  %c = stablehlo.constant dense<1.000000e+00> : tensor<1x8x8x24xf32>
  %6 = stablehlo.add %5, %c : tensor<1x8x8x24xf32>
  return %3, %4, %6 : tensor<2x4x32xf32>, tensor<2x4x16xf32>, tensor<1x8x8x24xf32>
}
// CHECK: changed: place-float-types, kernel-floats, kernel-merge
// CHECK-NOT: stablehlo.convert
// CHECK-DAG: call @jq_gemm_8x64x48_{{.*}} : (tensor<8x64xf32>, tensor<{{.*}}xi16>) -> tensor<8x48xf32>
// CHECK-DAG: %[[IMAGE:.*]] = stablehlo.pad %arg1, {{.*}} -> tensor<1x10x10x16xf32>
// CHECK-DAG: call @jq_convolution_1x10x10x16_24x3x3_{{.*}} : (tensor<1x10x160xf32>, tensor<{{.*}}xi16>, tensor<24xf32>) -> tensor<64x24xf32>
// CHECK-NOT: stablehlo.dot_general
// CHECK-NOT: stablehlo.convolution
