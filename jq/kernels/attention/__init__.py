"""Attention in floats."""
