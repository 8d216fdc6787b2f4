r"""Words into which byte-pair vocabularies cut text, by the name that GGUF files give it
(`tokenizer.ggml.pre`).

A way to cut is a series of regular expressions (Oniguruma's): each cuts what those before it left,
into its matches and what lies between them. Sources: the `tokenizer.json` of the models that the
names come from, and llama.cpp's list of names. Where llama.cpp has no class for a kind of letters
(`\p{Lu}` and the like), it says in its own way what the model's file says, and differs from it
beyond ASCII.
"""

from dataclasses import dataclass

_ENDINGS = r"'s|'t|'re|'ve|'m|'ll|'d"
_ANY_ENDINGS = rf"(?i:{_ENDINGS})"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_GPT2 = rf"{_ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_SIGNS = r"[\p{P}\$\+<=>\^~\|]+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_BY_SENTENCE_SIGNS = r" ?[^(\s|.,!?…。，、।۔،)]+"


def _by_case(ending: str, digits: str) -> str:
    """Words begin where a small letter is followed by a capital one."""
    front = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{front}{_UPPER}*{_LOWER}+{ending}|{front}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


@dataclass(frozen=True)
class Words:
    """Attributes:
    patterns: that cut, one after the other.
    whole: a word that is a token is that one, whatever merges would make of it.
    first: the token for a beginning goes in front of a prompt where the file does not say.
    characters: pieces are characters, with U+2581 for a space, not letters that stand for bytes.
    """

    patterns: tuple[str, ...]
    whole: bool = False
    first: bool = False
    characters: bool = False


_LLAMA3 = (rf"{_ANY_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}",)
_QWEN2 = (rf"{_ANY_ENDINGS}|{_WORD}|\p{{N}}|{_REST}",)
_MARKS = _QWEN2[0].replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}")

_NAMES = {
    "gpt-2 phi-2 jais mpt olmo gigachat a.x-4.0 mellum exaone4 trillion granite-docling": Words(
        (_GPT2,)
    ),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": Words(
        (r"\p{N}", _GPT2)
    ),
    "default": Words((_SIGNS, _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "falcon": Words((_SIGNS.replace("|]", "|`]"), _GPT2, "[0-9][0-9][0-9]")),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": Words(
        _LLAMA3, whole=True, first=True
    ),
    "dbrx smaug-bpe chatglm-bpe": Words(_LLAMA3),
    "glm4 glm5": Words(_LLAMA3, whole=True),
    "minicpm5": Words((r"\p{N}{1,3}", _QWEN2[0].replace(r"\p{N}|", r"\p{N}+|")), whole=True),
    "qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez kormo solar-open grok-2": Words(_QWEN2),
    "qwen35": Words((_MARKS,)),
    "seed-coder": Words((rf"{_ANY_ENDINGS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)),
    "tekken": Words((_by_case("", r"\p{N}"),), whole=True, first=True),
    "gpt-4o llama4 kanana2": Words((_by_case(f"{_ANY_ENDINGS}?", r"\p{N}{1,3}"),)),
    "deepseek-coder": Words((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, r"\p{N}")),
    "deepseek-llm": Words(
        (
            r"[\r\n]",
            r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            _EAST_ASIAN,
            r"\p{N}+",
        )
    ),
    "gemma4": Words((r"[^\n]+|\n+",), first=True, characters=True),
    "poro-chat bloom gpt3-finnish": Words((_BY_SENTENCE_SIGNS,)),
    "viking": Words((_BY_SENTENCE_SIGNS, r"\p{N}")),
}
WORDS = {name: words for names, words in _NAMES.items() for name in names.split()}
