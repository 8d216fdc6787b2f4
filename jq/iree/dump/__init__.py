"""The compiler's program after its own folding, read back: the ground truth of an audit."""
