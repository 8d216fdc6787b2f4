"""What a kernel computes is recognised and replaced by a call of it."""
