"""Comparison of a quantized model with the float one: outputs, layers inside, metrics of a task."""
