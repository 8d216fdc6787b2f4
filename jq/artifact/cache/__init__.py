"""Stores in the cache directory, kept between runs: compiled modules, results of long passes."""
