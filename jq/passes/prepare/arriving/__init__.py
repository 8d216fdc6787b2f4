"""Weights and products that arrive quantized: recognised, and kept as they came."""
