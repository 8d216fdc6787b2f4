"""The integer program in the forms that NPU compilers and other runtimes read."""
