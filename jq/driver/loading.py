"""Loads an artifact that was saved."""

from collections.abc import Sequence
from pathlib import Path

from jq.artifact.load import load_artifact
from jq.artifact.signature import asked_keys
from jq.base import UserError, as_path, check_type
from jq.driver.compiled import CompiledModel


def folder_of(artifact: str | Path | CompiledModel) -> Path:
    """The folder of an artifact: its path, or that of what `load` gave; `UserError` for what was
    compiled and is in no folder yet."""
    if not isinstance(artifact, CompiledModel):
        return as_path(artifact)
    if isinstance(artifact.vmfb, Path):
        return artifact.vmfb.parent
    raise UserError("this needs an artifact in a folder", hint="save it first: compiled.save(DIR)")


def load(
    directory: str | Path,
    *,
    threads: int | None = None,
    verify: str | Path | Sequence[str | Path] | None = None,
    trust: str = "any",
) -> CompiledModel:
    """Loads a saved artifact, and checks its checksums, version and parameters. What a call gives
    has no classes of yours: tuples for named tuples, dicts for other mappings.

    An artifact is native code, and checksums do not show who wrote it: load only what you trust.

    Args:
        directory: the folder that `CompiledModel.save` or `jaxq compile` wrote.
        threads: the number of threads that a call uses, 1 by default.
        verify: files of public keys; one of them must have signed the artifact.
        trust: `any`, or `verify`: the artifact must be signed by one of the keys of `verify`. If
            there are none, by one of those in the user's folder of trusted keys.

    Raises:
        UserError: the artifact is damaged, of a newer version, or lacks a valid signature.

    Example:
        ```python
        compiled = jq.load("out/")
        outputs = compiled(*model.example_inputs)
        ```"""
    check_type("threads", threads, int, type(None))
    found = load_artifact(as_path(directory), asked_keys(verify, trust))
    return CompiledModel(found.manifest, found.programs, found.parameters, threads=threads)
