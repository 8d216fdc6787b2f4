"""What IREE needs besides kernels: markers opened, defects worked around."""
