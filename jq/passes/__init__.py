"""Passes: a folder for each part of the way; a file that starts with `_` is what passes share."""
