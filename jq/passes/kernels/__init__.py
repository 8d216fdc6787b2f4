"""Passes that recognise what a kernel computes, and replace it by a call of the kernel."""
