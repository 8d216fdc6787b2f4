"""Language models from their files: text in, text out."""

from jq.language.model import LanguageModel

__all__ = ["LanguageModel"]
