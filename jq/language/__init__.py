"""Language models from their files: text in, text out."""
