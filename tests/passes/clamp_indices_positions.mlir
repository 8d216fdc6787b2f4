// RUN: clamp-indices
func.func @main(%x: tensor<200x3xf32>, %i: tensor<i8>, %j: tensor<ui32>, %k: tensor<i32>, %u: tensor<1x1xf32>)
    -> (tensor<3x2xf32>, tensor<200x3xf32>, tensor<3x2xf32>) {
  %0 = stablehlo.dynamic_slice %x, %i, %i, sizes = [3, 2] : (tensor<200x3xf32>, tensor<i8>, tensor<i8>) -> tensor<3x2xf32>
  %1 = stablehlo.dynamic_update_slice %x, %u, %j, %j : (tensor<200x3xf32>, tensor<1x1xf32>, tensor<ui32>, tensor<ui32>) -> tensor<200x3xf32>
  %2 = stablehlo.dynamic_slice %x, %k, %k, sizes = [3, 2] : (tensor<200x3xf32>, tensor<i32>, tensor<i32>) -> tensor<3x2xf32>
  return %0, %1, %2 : tensor<3x2xf32>, tensor<200x3xf32>, tensor<3x2xf32>
}
// CHECK: [[A:%[0-9]+]] = stablehlo.convert %arg1 : (tensor<i8>) -> tensor<i32>
// CHECK: [[B:%[0-9]+]] = stablehlo.convert %arg1 : (tensor<i8>) -> tensor<i32>
// CHECK: stablehlo.dynamic_slice %arg0, [[A]], [[B]]
// CHECK: [[C:%[0-9]+]] = stablehlo.convert %arg2 : (tensor<ui32>) -> tensor<i64>
// CHECK: [[D:%[0-9]+]] = stablehlo.convert %arg2 : (tensor<ui32>) -> tensor<i64>
// CHECK: stablehlo.dynamic_update_slice %arg0, %arg4, [[C]], [[D]]
// CHECK: stablehlo.dynamic_slice %arg0, %arg3, %arg3
