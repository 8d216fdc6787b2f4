"""What IREE's compiler holds after its own folding, read back: the ground truth of an audit."""
