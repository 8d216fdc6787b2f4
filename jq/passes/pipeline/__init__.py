"""A pipeline: settings and rules, read from `pipelines/<name>.toml`.

Which passes run follows from the settings: `jq.passes.order` has all of them in their order."""

from jq.passes.order import LEVELS
from jq.passes.pipeline.checks import for_target, load_pipeline, without_ranges
from jq.passes.pipeline.file import Pipeline, PipelineFile, changed_settings, flat_settings
from jq.passes.pipeline.rewriting import Levels, make_plan, prepare, rewrite
