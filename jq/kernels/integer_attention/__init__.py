"""Attention on int8 codes."""
