"""Attentions become one kernel: scores and probabilities stay in the caches."""
