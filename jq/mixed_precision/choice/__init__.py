"""Choice of an op's format, for both `auto` and a search."""
