"""Integers that IREE has not, or gets wrong, as bytes and words with a sign."""
