// RUN: kernel-updates
// KERNELS: avx2
// What another op reads is not written over; what is no input is IREE's; a part of rows, a position
// that is known, and two of them are none of the kernel's.
func.func @main(%a: tensor<9x8xf32>, %b: tensor<9x8xf32>, %c: tensor<9x8xf32>, %d: tensor<9x8xf32>,
                %new: tensor<4x8xf32>, %part: tensor<4x7xf32>, %p: tensor<i32>)
    -> (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>) {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %a, %new, %p, %z : (tensor<9x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<9x8xf32>
  %1 = stablehlo.negate %a : tensor<9x8xf32>
  %2 = stablehlo.dynamic_update_slice %1, %new, %p, %z : (tensor<9x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<9x8xf32>
  %3 = stablehlo.dynamic_update_slice %b, %part, %p, %z : (tensor<9x8xf32>, tensor<4x7xf32>, tensor<i32>, tensor<i32>) -> tensor<9x8xf32>
  %4 = stablehlo.dynamic_update_slice %c, %new, %z, %z : (tensor<9x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<9x8xf32>
  %5 = stablehlo.dynamic_update_slice %d, %new, %p, %p : (tensor<9x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<9x8xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>
}
// CHECK: changed: none
// CHECK-COUNT-5: stablehlo.dynamic_update_slice
