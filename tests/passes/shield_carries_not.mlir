// RUN: shield-carries
// A step reads all that it carries; what is carried in vain is nobody's.
func.func @main(%x: tensor<3xf32>, %v: tensor<i32>) -> tensor<3xf32> {
  %i = stablehlo.constant dense<0> : tensor<i32>
  %0:3 = stablehlo.while(%j = %i, %y = %x, %unread = %v) : tensor<i32>, tensor<3xf32>, tensor<i32>
    cond {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %t = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %k = stablehlo.add %j, %one : tensor<i32>
      %z = stablehlo.add %y, %y : tensor<3xf32>
      stablehlo.return %k, %z, %k : tensor<i32>, tensor<3xf32>, tensor<i32>
    }
  return %0#1 : tensor<3xf32>
}
// CHECK: changed: none
