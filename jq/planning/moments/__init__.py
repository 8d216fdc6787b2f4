"""Moments of what products read, and weights of rows: the input of recovery passes."""
