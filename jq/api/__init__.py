"""The public functions that compile. Start reading at `jq.api.compiling.compile`."""

from jq.api.compiling import compare, compile
from jq.api.steps import calibrate, explain, plan, rewrite
from jq.driver.compiled import CompiledModel
from jq.driver.loading import load
from jq.frontends.source import Source, trace
