"""Transposes that the model brings: moved until they cancel, or taken into products."""
