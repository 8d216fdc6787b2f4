"""A user's wishes and a device's abilities: settings, device tables, targets."""

from jq.target.rules import Rule
from jq.target.settings import FLOAT, Settings
from jq.target.target import Target, load_target
