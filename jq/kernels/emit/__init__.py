"""What a body is built with: a typed builder over IREE's MLIR bindings, and dispatches."""
