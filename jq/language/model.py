"""A language model that generates: `jq.LanguageModel(path).generate(prompt)`."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.signature import asked_keys
from jq.base.errors import UserError
from jq.base.progress import Progress, silent
from jq.base.system.files import as_path
from jq.frontends.gguf import open_gguf
from jq.language.chat import chat_prompt
from jq.language.decoder import load_decoder
from jq.language.folder_tokenizer import tokenizer_of_folder
from jq.language.generation import Generation
from jq.language.grammar import Schema, grammar, vocabulary
from jq.language.perplexity import Perplexity, measure
from jq.language.programs import Programs
from jq.language.sampling import Sampling
from jq.language.saved import is_saved
from jq.language.saved import load as load_saved
from jq.language.session import Session
from jq.language.store import HEADER, TOKENIZER, folder_of, options_for
from jq.language.tokenizer import Tokenizer, check_tokens, tokenizer_of_gguf


class LanguageModel:
    """A decoder from a `.gguf` file or a folder of Hugging Face, compiled for this processor.

    Args:
        path: the file or folder, or what `jaxq compile` made of one.
        pipeline: how weights and activations are computed with. `int8-dynamic`, the default, keeps
            the blocks of a file as they are and quantizes activations; `float` keeps activations,
            too.
        cache: keys and values are kept as "float32" (the default), "bfloat16" or "int8".
        context: at most so many tokens, prompt included; 4096, or the model's own limit if less.
        batch: sequences that go side by side, for `generate_batch` and `session`.
        threads: that compute.
        progress: called with what takes long, as that of `jq.compile`.
        verify: as in `jq.load`: files of keys, one of which must have signed a compiled model.
        trust: as in `jq.load`: `any`, or `verify`: without files, the keys of the user's folder.

    Programs are compiled when they are first needed, and kept in the user's cache directory.

    Example:
        ```python
        model = jq.LanguageModel("model.gguf", context=32)
        for token in model.generate("once upon a time", max_tokens=4):
            print(model.decode([token]), end="", flush=True)
        ```"""

    def __init__(
        self,
        path: str | Path,
        *,
        pipeline: str | None = None,
        cache: str | None = None,
        context: int | None = None,
        batch: int = 1,
        threads: int = 1,
        progress: Progress = silent,
        cache_dir: Path | None = None,
        verify: str | Path | Sequence[str | Path] | None = None,
        trust: str = "any",
    ) -> None:
        self.path = as_path(path)
        keys = asked_keys(verify, trust)
        given: Any = {"pipeline": pipeline, "cache": cache, "context": context, "batch": batch}
        if is_saved(self.path):
            saved = load_saved(self.path, keys)
            saved.check(given, self.path)
            self.config, self.options = saved.config, saved.options
            self._tokenizer_folder = self.path / TOKENIZER
            header = self._tokenizer_folder / HEADER
            self._metadata = open_gguf(header)[1].metadata if header.exists() else None
            folder, sealed = self.path, True
        else:
            if keys:
                what = "only what was compiled ahead is signed"
                raise UserError(what, location=str(path), hint="compile it")
            decoder = load_decoder(path)
            self.config, self._tokenizer_folder = decoder.config, self.path
            self.options = options_for(decoder, **given)
            self._metadata = decoder.file.metadata if decoder.file else None
            folder, sealed = folder_of(self.path, self.options, cache_dir), False
        self.programs = Programs(self.path, self.options, threads, folder, sealed, progress)

    def __repr__(self) -> str:
        return f"<LanguageModel {self.config.architecture}: {self.path.name}>"

    @cached_property
    def tokenizer(self) -> Tokenizer:
        if self._metadata is None:
            return tokenizer_of_folder(self._tokenizer_folder)
        return tokenizer_of_gguf(self._metadata, str(self.path))

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Tokens of a prompt; `special`: names of control tokens are these tokens."""
        return self.tokenizer.encode(text, special)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Tokens of a conversation for the model to answer, by its own template. Options, `tools`
        among them, are those of `transformers` (see `jq.language.chat.chat_prompt`)."""
        return self.tokenizer.encode(chat_prompt(self.tokenizer, messages, **options), special=True)

    def conversation(self, system: str | None = None, **options: Any) -> "Conversation":
        """Turns of a chat, after an instruction where `system` is given; options as of `chat`."""
        return Conversation(self, system, **options)

    def perplexity(self, *texts: str | Path, limit: int | None = None) -> Perplexity:
        """Perplexity on text files, of which at most `limit` tokens are read."""
        return measure(self, [Path(text) for text in texts], limit=limit)

    def compare(
        self, other: "LanguageModel", *texts: str | Path, limit: int | None = None
    ) -> Perplexity:
        """Compares another model of the same tokens with this one on text files: `kl` from the
        distributions of this model, `changed` and `agreement` of the most likely tokens,
        `perplexity` of the other and `other_perplexity` of this one."""
        return measure(other, [Path(text) for text in texts], self, limit)

    def session(self) -> Session:
        """An empty sequence."""
        return Session(self.programs)

    def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 128,
        *,
        stop: Sequence[str] = (),
        session: Session | None = None,
        lookup: int = 0,
        logprobs: int | None = None,
        schema: Schema | None = None,
        regex: str | None = None,
        **sampling: Any,
    ) -> Generation:
        """The tokens that follow a prompt (text, or tokens), as an iterator.

        It ends after `max_tokens`, at the model's own token for an end, at a text in `stop`, or
        when the context is full. Without a `temperature` each token is the most likely one;
        `sampling` has the fields of `Sampling`, which says how others are drawn: `temperature`,
        `top_k`, `top_p`, `min_p`, `repeat_penalty`, `presence_penalty`, `frequency_penalty` and
        `seed`. A `session` that is given goes on from where its tokens and the prompt part.
        `lookup` and `logprobs` are those of `Generation`.

        Text that ends with "end" is JSON of a `schema` (what it says, or a file of it), or is
        matched by a `regex` as a whole, where one of them is given."""
        if self.options.batch != 1:
            what = f"the model takes {self.options.batch} sequences at once"
            raise UserError(what, hint="use generate_batch")
        tokens = self._checked(prompt, max_tokens)
        stop = [stop] if isinstance(stop, str) else list(stop)
        if not all(stop):
            raise UserError("an empty text stops at once", hint="leave it out")
        drawn = Sampling(**sampling)
        if lookup < 0 or (logprobs is not None and logprobs < 0):
            raise UserError(f"lookup and logprobs are 0 or more, got {lookup} and {logprobs}")
        free = schema is None and regex is None
        held = None if free else grammar(self._vocabulary, schema, regex)
        return Generation(self, tokens, max_tokens, drawn, stop, session, lookup, logprobs, held)

    @cached_property
    def _vocabulary(self) -> Any:
        return vocabulary(self.tokenizer)

    def generate_batch(
        self, prompts: Sequence[str | Sequence[int]], max_tokens: int = 128, **sampling: Any
    ) -> list[list[int]]:
        """The tokens that follow each of `batch` prompts, of any lengths: those that each gives
        alone. Each sequence ends as one of `generate` does; the others go on. `sampling` is that of
        `generate`, with one seed for all."""
        rows = [self._checked(prompt, max_tokens) for prompt in prompts]
        if len(rows) != self.options.batch:
            what = f"{len(rows)} prompts are given, the model takes {self.options.batch} at once"
            raise UserError(what)
        drawn = Sampling(**sampling)
        rng = np.random.default_rng(drawn.seed)
        session, found = self.session(), [list[int]() for _ in rows]
        going, taken = set(range(len(rows))), rows
        while True:
            logits = session.take(taken)
            for i in sorted(going):
                token = drawn.choose(logits[i], rng, [*rows[i], *found[i]])
                if token not in self.tokenizer.ends:
                    found[i].append(token)
                full = session.positions[i] >= self.options.context
                if token in self.tokenizer.ends or len(found[i]) >= max_tokens or full:
                    going.remove(i)
            if not going:
                return found
            taken = [found[i][-1:] if i in going else [] for i in range(len(rows))]

    def _checked(self, prompt: str | Sequence[int], max_tokens: int) -> list[int]:
        """The tokens of a prompt; `UserError` where it is none, or does not fit."""
        tokens = self.encode(prompt) if isinstance(prompt, str) else [int(t) for t in prompt]
        if max_tokens < 1:
            raise UserError(f"max_tokens must be at least 1, got {max_tokens}")
        check_tokens(tokens, self.config.vocabulary)
        if not tokens:
            raise UserError("there is no token in the prompt", hint="give some text")
        if len(tokens) > (context := self.options.context):
            what = f"a prompt of {len(tokens)} tokens does not fit into a context of {context}"
            raise UserError(what, hint="give a larger context, or a shorter prompt")
        return tokens


class Conversation:
    """The turns so far are `messages`, the one of a `system` first where it is given."""

    def __init__(self, model: LanguageModel, system: str | None = None, **options: Any) -> None:
        self.model, self._session, self._options = model, model.session(), options
        self.messages: list[dict[str, str]] = []
        if system is not None:
            self.messages.append({"role": "system", "content": system})
        self._answer: Generation | None = None

    def ask(self, text: str, **options: Any) -> Generation:
        """The answer to a question, with what was said before in front of it; options are those of
        `LanguageModel.generate`. It becomes a message when the next question comes.

        Raises:
            UserError: the model has no chat template, it refuses the messages, or they do not fit
                into the context; nothing has been added to them then."""
        said = list(self.messages)
        if self._answer is not None:
            said.append({"role": "assistant", "content": self._answer.text})
        said.append({"role": "user", "content": text})
        prompt = self.model.chat(said, **self._options)
        answer = self.model.generate(prompt, session=self._session, **options)
        self.messages, self._answer = said, answer
        return answer
