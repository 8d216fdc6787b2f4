"""Tools to build a body: a typed builder over IREE's MLIR bindings, and dispatches."""
