"""`jaxq generate` and `jaxq perplexity`: language models from their files."""

import sys
import time
from collections import deque
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.base.system.files import read_text
from jq.cli.command import command
from jq.cli.language import WINDOW, converse, stream, text_of
from jq.cli.output import Output


@command("generate", example='jaxq generate model.gguf --prompt "Once upon a time"')
def generate(
    out: Output,
    model: Path,
    prompt: str | None = None,
    prompt_file: Path | None = None,
    max_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repeat_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    lookup: int = 0,
    schema: Path | None = None,
    regex: str | None = None,
    seed: int = 0,
    stop: list[str] | None = None,
    chat: bool = False,
    system: str | None = None,
    context: int | None = None,
    cache: str | None = None,
    pipeline: str | None = None,
    threads: int = 1,
    verify: list[Path] | None = None,
    trust: str = "any",
) -> dict[str, Any]:
    """Continues a text with a language model, token by token; with --chat, answers in its chat.

    Args:
        model (<MODEL>): A .gguf file, a folder of Hugging Face, or what compile made of one.
        context (N): At most so many tokens, prompt included.
        pipeline (-p NAME): int8-dynamic keeps the file's own blocks.
        prompt (TEXT): What to continue, or answer; - is standard input.
        prompt_file (FILE): What to continue, from a file of UTF-8.
        max_tokens (N): At most so many tokens.
        temperature (T): 0: the most likely.
        top_k (K): Draw from the K likeliest.
        top_p (P): Draw from the fewest with P.
        min_p (P): Not what is less likely than P of the likeliest.
        repeat_penalty (X): Above 1: less of what was said a moment ago.
        presence_penalty (X): Taken from logits of what was said a moment ago.
        frequency_penalty (X): Likewise, for each time that it was said.
        lookup (N): Try N tokens that followed the same ones before.
        schema (FILE): Answer with JSON of this JSON schema.
        regex (REGEX): Answer with a text that it matches.
        seed (N): Of what is drawn.
        stop (TEXT): End before this text; repeatable.
        chat: As a turn in the model's chat; of several without a prompt.
        system (TEXT): What the chat begins with, as its system."""
    from jq.base.system.processor import peak_rss_bytes
    from jq.language.model import LanguageModel
    from jq.language.sampling import Sampling

    start = time.perf_counter()
    penalties = (repeat_penalty, presence_penalty, frequency_penalty)
    drawn = Sampling(temperature, top_k, top_p, min_p, *penalties, seed)
    given: Any = _prompt(out, prompt, prompt_file, chat=chat, system=system)
    choices = {**vars(drawn), "stop": stop or (), "max_tokens": max_tokens}
    choices |= {"lookup": lookup, "schema": schema, "regex": regex}
    with out.progress() as progress:
        loaded = LanguageModel(
            model,
            pipeline=pipeline,
            cache=cache,
            context=context,
            threads=threads,
            progress=progress,
            verify=verify,
            trust=trust,
        )
        if given is not None:
            made = loaded.conversation(system).ask if chat else loaded.generate
            found = made(given, **choices)
            pieces = found.pieces()
            first, first_token = next(pieces, ""), time.perf_counter() - start
    if given is None:
        return {"answers": converse(out, loaded, system, choices)}
    if out.json:
        deque(pieces, maxlen=0)
    else:
        stream(out, chain([first], pieces))
    times, peak = found.times, peak_rss_bytes()
    out.note(
        f"first token after {first_token:.2f} s; prefill {times.prefill_rate:.1f} tokens/s,"
        f" decode {times.decode_rate:.1f} tokens/s; peak memory {peak / 2**20:.0f} MiB"
    )
    if found.ended == "context":
        out.note(f"the context of {loaded.options.context} tokens is full; --context gives more")
    return {
        "text": found.text,
        "tokens": found.tokens,
        "prompt_tokens": times.prompt_tokens,
        "first_token_s": first_token,
        "prefill_tokens_per_s": times.prefill_rate,
        "decode_tokens_per_s": times.decode_rate,
        "peak_rss_bytes": peak,
        "ended": found.ended,
    }


def _prompt(
    out: Output, text: str | None, file: Path | None, *, chat: bool, system: str | None
) -> str | None:
    """The text to continue; None for a conversation, whose turns are read one after the other."""
    if system is not None and not chat:
        raise UserError("--system is for --chat")
    if text is not None and file is not None:
        raise UserError("--prompt and --prompt-file are both given", hint="give one of them")
    if file is not None or text == "-":
        # What an editor or `echo` ends a line with is not part of a prompt.
        return (read_text(file) if file else text_of(sys.stdin.buffer.read())).removesuffix("\n")
    if text is None and (out.json or not chat):
        what = "there is no prompt"
        raise UserError(what, hint="give --prompt TEXT, or --chat alone for a conversation")
    return text


@command("perplexity", example="jaxq perplexity model.gguf text.txt")
def perplexity(
    out: Output,
    model: Path,
    text: list[Path],
    against: str | None = None,
    window: int | None = None,
    limit: int | None = None,
    cache: str | None = None,
    pipeline: str | None = None,
    threads: int = 1,
) -> dict[str, Any]:
    """Measures the perplexity of a language model on a text.

    Args:
        model (<MODEL>): A .gguf file, a folder of Hugging Face, or what compile made of one.
        pipeline (-p NAME): int8-dynamic keeps the file's own blocks.
        text (<TEXT...>): Text files, UTF-8.
        against (PIPELINE): Compare with it too, token by token, as `float`.
        window (N): Tokens of a piece of text; 512 by default, or the model's context.
        limit (N 2..): Tokens in all."""
    from jq.language.decoder import load_decoder
    from jq.language.model import LanguageModel
    from jq.language.perplexity import measure
    from jq.language.saved import is_saved

    if against is not None and is_saved(model):
        what = "the float model is not in what was compiled"
        hint = "jaxq compare MODEL DIR --text TEXT, with the file that it was compiled from"
        raise UserError(what, location=str(model), hint=hint)
    with out.progress() as progress:
        most = None if is_saved(model) else min(WINDOW, load_decoder(model).config.context)
        context = most and (most if window is None else window)
        load = partial(LanguageModel, model, context=context, threads=threads, progress=progress)
        other = None if against is None else load(pipeline=against)
        progress("text", None)
        own = load(pipeline=pipeline, cache=cache)
        found = measure(own, text, other, limit, progress, WINDOW if window is None else window)
    document = found.to_dict()
    out.table("perplexity", list(document), [document])
    return document
