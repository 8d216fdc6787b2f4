"""Other executions of a program: XLA, and the StableHLO interpreter."""
