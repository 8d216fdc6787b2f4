module {
  func.func public @main(%arg0: tensor<2x8xi8>, %arg1: tensor<8x4xi8>, %arg2: tensor<1x4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] {jq.name = "dense/w"} : (tensor<2x8xi8>, tensor<8x4xi8>) -> tensor<2x4xi32>
    %1 = stablehlo.convert %0 : (tensor<2x4xi32>) -> tensor<2x4xf32>
    %2 = stablehlo.broadcast_in_dim %arg2, dims = [0, 1] : (tensor<1x4xf32>) -> tensor<2x4xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<2x4xf32>
    return %3 : tensor<2x4xf32>
  }
}
