"""Convolutions as products."""
