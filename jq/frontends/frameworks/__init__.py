"""Modules of frameworks as they are: each becomes a `jq.Model`.

A module holds more than its parameters: the statistics of its batch norms, random keys, and whether
it is being trained. What comes of it is a function of the parameters and the inputs alone, in
evaluation mode, whose weights are called as the framework calls them. The module is left as it is.
"""

from jq.frontends.frameworks.flax import from_linen, from_nnx
from jq.frontends.frameworks.others import from_equinox, from_haiku, from_keras
