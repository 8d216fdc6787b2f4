"""The arguments that all public functions share, as they were given, and checked once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.programs import best_first
from jq.base import Stages, check_type
from jq.frontends.source import Data, LazyCalls, check_files
from jq.iree.compiler import check_flags
from jq.passes.pipeline import Pipeline, PipelineFile, load_pipeline
from jq.passes.pipeline.file import Rules, SettingsLike, as_overrides, as_rules
from jq.planning.calibration.ranges import Ranges
from jq.target import Rule, Target, load_target


@dataclass(frozen=True)
class Request:
    """The arguments of `jq.compile`, as they were given; what they mean is found once.

    Attributes:
        cache: take what recovery and calibration found from earlier runs, and keep it.
        stages: takes the time of each stage, and shows how far it is."""

    pipeline: str | PipelineFile = "int8-dynamic"
    target: str | Target = "llvm-cpu"
    settings: SettingsLike = None
    rules: Rules = None
    calibration: Data | LazyCalls = None
    ranges: Ranges | str | Path | None = None
    allow_dynamic: bool = False
    strict_encodings: bool = False
    stages: Stages = field(default_factory=Stages)
    cache: bool = False
    iree_flags: Sequence[str] = ()
    minutes: float = 0.0

    def __post_init__(self) -> None:
        for name in ("cache", "allow_dynamic", "strict_encodings"):
            check_type(name, getattr(self, name), bool, np.bool_)
        check_type("ranges", self.ranges, Ranges, str, Path, type(None))
        check_type("iree_flags", self.iree_flags, list, tuple)
        for flag in self.iree_flags:
            check_type("a flag of IREE's compiler", flag, str)

    @cached_property
    def own_rules(self) -> tuple[Rule, ...]:
        return tuple(as_rules(self.rules))

    @cached_property
    def own_settings(self) -> dict[str, Any]:
        own = as_overrides(self.settings)
        own |= {"minutes": self.minutes} if self.minutes else {}
        return own | {"strict_encodings": True} if self.strict_encodings else own

    @cached_property
    def base(self) -> Pipeline:
        """The pipeline with the settings and rules that were given."""
        return load_pipeline(self.pipeline, self.own_settings, self.own_rules)

    @cached_property
    def own_target(self) -> Target:
        return best_first(load_target(self.target))

    @cached_property
    def where(self) -> Target:
        """The target with the flags that were given."""
        return self.own_target.with_flags(self.iree_flags)

    @cached_property
    def known(self) -> Ranges | None:
        """The ranges that were given, read where they are in a file."""
        given = self.ranges
        return Ranges.load(Path(given)) if isinstance(given, str | Path) else given

    def check(self) -> None:
        """Refuses (`UserError`) every wrong name, setting, flag and file before any slow work."""
        _ = self.base, self.where, self.known
        check_files(self.calibration)
        if self.iree_flags:
            check_flags(self.where.flags)
