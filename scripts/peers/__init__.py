"""Other runtimes beside this compiler: what `scripts/benchmark_peers.py` is made of."""
