"""Products of weights that are read as they are stored, and lookups in those."""
