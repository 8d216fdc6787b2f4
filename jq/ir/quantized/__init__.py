"""StableHLO's own quantized types: on codes at the edges, on the values between ops, and back."""
