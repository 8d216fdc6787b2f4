"""Jinja as chat templates expect it: what `transformers` adds to the language, in a sandbox."""

import json
from datetime import datetime
from typing import Any

from jq.base.errors import UserError
from jq.models._extras import need


def environment() -> Any:
    """Jinja's sandbox with blocks that stand alone on a line leaving no line behind, `break` and
    `continue`, `{% generation %}`, and `tojson` and `namespace` as `transformers` has them."""
    jinja, sandbox, more = need("jinja2"), need("jinja2.sandbox"), need("jinja2.ext")

    class Generation(more.Extension):  # type: ignore[name-defined]
        """Marks what an assistant said, for training; the text is that of the block's body."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja.nodes.CallBlock(self.call_method("body"), [], [], body, lineno=line)

        def body(self, caller: Any) -> Any:
            return caller()

    class Namespace(jinja.utils.Namespace):  # type: ignore[name-defined]
        """Without names of Python's own."""

        def __init__(*given: Any, **values: Any) -> None:
            jinja.utils.Namespace.__init__(*given)
            for name, value in {**dict(*given[1:]), **values}.items():
                given[0][name] = value

        def __setitem__(self, name: Any, value: Any) -> None:
            if isinstance(name, str) and name.startswith("_"):
                raise jinja.exceptions.SecurityError(f"a namespace cannot hold {name!r:.40}")
            super().__setitem__(name, value)

    found = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, more.loopcontrols]
    )
    found.filters["tojson"] = _json
    found.globals |= {
        "raise_exception": _refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "namespace": Namespace,
    }
    return found


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter would escape HTML and all that is not ASCII, and sort keys."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise UserError(f"the chat template refuses these messages: {message}")


__all__ = ["environment"]
