"""Weights and products that arrive quantized: recognised, and kept as they came."""

FLOATS = ("float32", "bfloat16", "float16")  # in which models compute their weights
