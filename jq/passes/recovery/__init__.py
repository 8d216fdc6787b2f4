"""Weights, scales and biases that lose less: passes which the setting `recovery` chooses among."""
