"""Formats that other quantizers write, which weights keep where a model brings them."""
