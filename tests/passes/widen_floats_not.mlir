// RUN: widen-floats
// Floats stay between products: their types are the model's choice.
func.func @main(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = stablehlo.tanh %x : tensor<4xbf16>
  return %0 : tensor<4xbf16>
}
// CHECK: changed: none
// CHECK: tanh %arg0 {{.*}}tensor<4xbf16>
