"""Programs on quantized types, and back."""
