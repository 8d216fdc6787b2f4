"""Integer products of matrices."""
