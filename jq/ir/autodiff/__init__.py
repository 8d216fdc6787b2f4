"""A program as a differentiable JAX function, and what recovery learns by gradients."""
