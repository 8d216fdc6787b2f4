"""Latency and memory of a compiled program, measured in a process of its own."""

from jq.reporting.benchmark.session import Job, Latency, Session, bench, measure, random_inputs
