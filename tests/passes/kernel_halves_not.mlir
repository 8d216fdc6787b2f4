// RUN: place-float-types, kernel-floats, kernel-halves
// SETTINGS: op_types=dot_general weights.format=float activations.format=float float_type=bfloat16
// KERNELS: avx512_bf16
// Something else reads the result, too; and padding that is no zero.
func.func @main(%x: tensor<8x64xf32>, %w: tensor<64x32xf32> {jq.weight = "w"}, %v: tensor<32x16xf32> {jq.weight = "v"},
                %u: tensor<64x32xf32> {jq.weight = "u"}, %t: tensor<40x16xf32> {jq.weight = "t"})
    -> (tensor<8x32xf32>, tensor<8x16xf32>, tensor<8x16xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {jq.name = "w"} : (tensor<8x64xf32>, tensor<64x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] {jq.name = "v"} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %2 = stablehlo.dot_general %x, %u, contracting_dims = [1] x [0] {jq.name = "u"} : (tensor<8x64xf32>, tensor<64x32xf32>) -> tensor<8x32xf32>
  %c = stablehlo.constant dense<-0.000000e+00> : tensor<f32>
  %3 = stablehlo.pad %2, %c, low = [0, 0], high = [0, 8], interior = [0, 0] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8x40xf32>
  %4 = stablehlo.dot_general %3, %t, contracting_dims = [1] x [0] {jq.name = "t"} : (tensor<8x40xf32>, tensor<40x16xf32>) -> tensor<8x16xf32>
  return %0, %1, %4 : tensor<8x32xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}
// CHECK: changed: place-float-types, kernel-floats
// CHECK-NOT: -> tensor<{{.*}}xi16>
