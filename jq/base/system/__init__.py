"""The operating system and the machine: files, memory, child processes, the processor."""
