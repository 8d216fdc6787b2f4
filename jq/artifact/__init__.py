"""The artifact: its manifest, its parameter files, its signature; written whole, read checked."""
