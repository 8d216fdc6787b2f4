"""Drawn StableHLO graphs of exact arithmetic: every evaluator must give the same bits."""
