"""Independent jobs, in this process, in several, or on other machines: with equal results.

A `Work` is what many jobs have in common (a program with its weights, say). It travels to each
worker once and is opened there; a job is a small item that an opened work takes, and its result is
arrays by name. `run_jobs` is the one place that knows where jobs run."""

from jq.artifact.jobs.run import HERE, Workers, as_workers, in_order, prepare, run_jobs
from jq.artifact.jobs.work import Result, Work, work_digest
