"""Instruction sets, their products and matrix tiles, and how work is cut for them."""
