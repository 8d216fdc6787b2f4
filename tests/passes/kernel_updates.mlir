// RUN: kernel-updates
// KERNELS: avx2
func.func @main(%cache: tensor<2x9x3x8xbf16>, %new: tensor<2x4x3x8xbf16>, %p: tensor<i64>) -> tensor<2x9x3x8xbf16> {
  %c = stablehlo.constant dense<0> : tensor<i64>
  %0 = stablehlo.dynamic_update_slice %cache, %new, %c, %p, %c, %c {jq.name = "update"}
       : (tensor<2x9x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>) -> tensor<2x9x3x8xbf16>
  return %0 : tensor<2x9x3x8xbf16>
}
// CHECK: changed: kernel-updates
// CHECK: stablehlo.constant dense<5> : tensor<i64>
// CHECK: stablehlo.convert {{.*}} : (tensor<i64>) -> tensor<i32>
// CHECK: call @jq_update_rows_2x9x24_4_{{.*}} {jq.name = "update"} : (tensor<2x9x24xbf16>, tensor<2x4x24xbf16>, tensor<1xi32>) -> tensor<2x9x24xbf16>
// CHECK-NOT: dynamic_update_slice
