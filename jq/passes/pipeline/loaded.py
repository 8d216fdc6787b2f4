"""A pipeline ready to run, and the passes that run under its settings."""

from dataclasses import dataclass, field
from functools import cached_property

from jq.passes.base import Pass
from jq.passes.order import Level, passes_for
from jq.passes.pipeline.file import PipelineFile
from jq.target.rules import Rule
from jq.target.settings import Settings


@dataclass(frozen=True)
class Pipeline:
    """A pipeline ready to run.

    `explicit` are the settings that the user gave by name; `file` is what it was made from.
    """

    name: str
    description: str
    settings: Settings
    rules: tuple[Rule, ...]
    explicit: frozenset[str] = frozenset()
    file: PipelineFile = field(default_factory=PipelineFile)

    @property
    def open(self) -> bool:
        """True if it leaves the formats of ops to be chosen."""
        return bool(self.file.candidates)

    @cached_property
    def passes(self) -> dict[Level, tuple[Pass, ...]]:
        """The passes that run under the pipeline's settings."""
        return passes_for(self.settings)
