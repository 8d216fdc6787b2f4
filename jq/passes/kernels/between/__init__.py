"""The arithmetic between the kernels of integer-only programs."""
