"""The built-in models, one a file."""
