"""IREE: its compiler as a process of its own, what it is handed, its runtime, its processors."""
