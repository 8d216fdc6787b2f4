"""MLIR, as the rest of the package sees it: the only place that imports its bindings."""
