"""The stages of a compile, and what is made of it: artifacts, audits, comparisons."""
