"""A conversation: questions and answers in turn, of which only what is new is computed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from jq.language.generation import Generation
from jq.language.session import Session


class LanguageModelLike(Protocol):
    """The members of a `LanguageModel` that a conversation needs."""

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]: ...

    def session(self) -> Session: ...

    @property
    def generate(self) -> Callable[..., Generation]: ...


class Conversation:
    """The turns so far are `messages`, the one of a `system` first where it is given.

    Example:
        ```python
        talk = jq.LanguageModel("model.gguf", context=64).conversation()
        print("".join(talk.ask("hello", max_tokens=4).pieces()))
        print("".join(talk.ask("and then?", max_tokens=4).pieces()))
        ```
    """

    def __init__(self, model: LanguageModelLike, system: str | None = None) -> None:
        self.model, self._session = model, model.session()
        self.messages: list[dict[str, str]] = []
        if system is not None:
            self.messages.append({"role": "system", "content": system})
        self._answer: Generation | None = None

    def ask(self, text: str, **options: Any) -> Generation:
        """The answer to a question, with what was said before in front of it; options are those of
        `LanguageModel.generate`. It becomes a message when the next question comes.

        Raises:
            UserError: the model has no chat template, it refuses the messages, or they do not fit
                into the context; nothing has been added to them then.
        """
        said = list(self.messages)
        if self._answer is not None:
            said.append({"role": "assistant", "content": self._answer.text})
        said.append({"role": "user", "content": text})
        answer = self.model.generate(self.model.chat(said), session=self._session, **options)
        self.messages, self._answer = said, answer
        return answer
