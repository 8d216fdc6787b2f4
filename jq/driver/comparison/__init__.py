"""How far a quantized model is from the float one: outputs, layers inside, metrics of a task."""
