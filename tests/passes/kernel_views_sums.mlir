// RUN: kernel-views, kernel-integer-rows
// KERNELS: avx512_vnni
// A sum of codes that a product reads, flipped, and the next sum.
func.func @main(%x: tensor<4x64xi8>, %y: tensor<4x64xi8>) -> (tensor<4x64xi8>, tensor<256xi8>) {
  %flip = stablehlo.constant dense<-128> : tensor<4x64xi8>
  %low = stablehlo.constant dense<-128> : tensor<4x64xi32>
  %high = stablehlo.constant dense<127> : tensor<4x64xi32>
  %three = stablehlo.constant dense<3> : tensor<256xi32>
  %ends = stablehlo.constant dense<99> : tensor<256xi32>
  %0 = stablehlo.convert %x : (tensor<4x64xi8>) -> tensor<4x64xi32>
  %1 = stablehlo.convert %y : (tensor<4x64xi8>) -> tensor<4x64xi32>
  %2 = stablehlo.add %0, %1 : tensor<4x64xi32>
  %3 = stablehlo.maximum %2, %low : tensor<4x64xi32>
  %4 = stablehlo.minimum %3, %high : tensor<4x64xi32>
  %5 = stablehlo.convert %4 : (tensor<4x64xi32>) -> tensor<4x64xi8>
  %6 = stablehlo.xor %5, %flip : tensor<4x64xi8>
  %7 = stablehlo.reshape %5 : (tensor<4x64xi8>) -> tensor<256xi8>
  %8 = stablehlo.convert %7 : (tensor<256xi8>) -> tensor<256xi32>
  %9 = stablehlo.multiply %8, %three : tensor<256xi32>
  %10 = stablehlo.minimum %9, %ends : tensor<256xi32>
  %11 = stablehlo.convert %10 : (tensor<256xi32>) -> tensor<256xi8>
  return %6, %11 : tensor<4x64xi8>, tensor<256xi8>
}
// It is stored once, flipped; the next sum flips it back in its own kernel.
// CHECK: changed: kernel-views, kernel-integer-rows
// CHECK-NOT: stablehlo.xor
// CHECK: call @jq_row_program_
// CHECK-NOT: stablehlo.xor
// CHECK: call @jq_row_program_
// CHECK-NOT: stablehlo.xor
// CHECK: return
// CHECK: func.func private @jq_row_program_{{.*}}xor
// CHECK: func.func private @jq_row_program_{{.*}}xor
