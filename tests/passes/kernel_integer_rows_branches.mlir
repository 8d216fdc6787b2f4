// RUN: kernel-integer-rows
// KERNELS: avx2
// Codes of the same operand in two branches: a kernel each, in its branch.
func.func @main(%x: tensor<4x40xi8>, %i: tensor<i32>) -> tensor<4x40xi8> {
  %three = stablehlo.constant dense<3> : tensor<4x40xi32>
  %four = stablehlo.constant dense<4> : tensor<4x40xi32>
  %r = "stablehlo.case"(%i) ({
    %0 = stablehlo.convert %x : (tensor<4x40xi8>) -> tensor<4x40xi32>
    %1 = stablehlo.multiply %0, %three : tensor<4x40xi32>
    %2 = stablehlo.add %1, %four : tensor<4x40xi32>
    %3 = stablehlo.shift_right_arithmetic %2, %three : tensor<4x40xi32>
    %4 = stablehlo.convert %3 : (tensor<4x40xi32>) -> tensor<4x40xi8>
    stablehlo.return %4 : tensor<4x40xi8>
  }, {
    %0 = stablehlo.convert %x : (tensor<4x40xi8>) -> tensor<4x40xi32>
    %1 = stablehlo.multiply %0, %four : tensor<4x40xi32>
    %2 = stablehlo.subtract %1, %three : tensor<4x40xi32>
    %3 = stablehlo.shift_right_arithmetic %2, %four : tensor<4x40xi32>
    %4 = stablehlo.convert %3 : (tensor<4x40xi32>) -> tensor<4x40xi8>
    stablehlo.return %4 : tensor<4x40xi8>
  }) : (tensor<i32>) -> tensor<4x40xi8>
  return %r : tensor<4x40xi8>
}
// CHECK: changed: kernel-integer-rows
// CHECK: stablehlo.case
// CHECK: call @jq_row_program_{{.*}} -> tensor<{{[0-9x]+}}xi8>
// CHECK: }, {
// CHECK: call @jq_row_program_{{.*}} -> tensor<{{[0-9x]+}}xi8>
