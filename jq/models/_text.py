"""English sentences that every machine has: docstrings of Python's standard library."""

import ast
import hashlib
import re
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Present in every Python from 3.11 on as single files, and read, never imported.
_MODULES = """
argparse ast base64 bdb bisect calendar cmd codecs collections/__init__ concurrent/futures/_base
configparser contextlib copy csv dataclasses difflib dis doctest email/message email/header
enum filecmp fileinput fnmatch fractions ftplib functools gettext glob
gzip heapq html/parser http/client http/cookiejar http/cookies http/server imaplib inspect
ipaddress json/__init__ json/decoder json/encoder locale logging/__init__ logging/config
logging/handlers mailbox mimetypes netrc numbers optparse os pickle pickletools platform plistlib
poplib posixpath pprint profile pstats queue quopri random sched selectors shelve shlex shutil
smtplib socket socketserver ssl statistics string stringprep subprocess symtable tarfile tempfile
textwrap threading timeit tokenize trace traceback types typing unittest/case unittest/loader
unittest/mock unittest/runner unittest/suite urllib/parse urllib/request urllib/robotparser uuid
warnings wave weakref webbrowser wsgiref/handlers wsgiref/headers xml/dom/minidom
xml/etree/ElementTree xmlrpc/client zipapp asyncio/base_events asyncio/events asyncio/locks
asyncio/queues asyncio/streams asyncio/tasks
"""
_HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)  # what a statement can stand in
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@cache
def sentences() -> tuple[str, ...]:
    """Different texts of 4 to 120 words: one sentence, one paragraph or all prose, a third each.

    The same for the same release of Python: files are read in a fixed order, and the texts
    are sorted by a hash, so that any run of them mixes modules and lengths. No two begin
    with the same sentence.
    """
    first: dict[str, str] = {}
    for doc in _docstrings():
        prose = [" ".join(p.split()) for p in re.split(r"\n\s*\n", doc) if ">>>" not in p]
        if not prose or not prose[0][:1].isalpha():
            continue
        opening = _SENTENCE.split(prose[0])[0]
        length = len(first) % 3
        text = (opening, prose[0], " ".join(prose))[length]
        if len(opening.split()) >= 4:
            first.setdefault(opening.lower(), " ".join(text.split()[:120]))
    unique = sorted(set(first.values()))
    return tuple(sorted(unique, key=lambda text: hashlib.sha256(text.encode()).digest()))


def _docstrings() -> Iterator[str]:
    """Docstrings in source order; a module that this Python lacks gives none."""
    library = Path(sysconfig.get_path("stdlib"))
    for name in _MODULES.split():
        path = library / f"{name}.py"
        if not path.is_file():
            continue
        for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                doc = ast.get_docstring(node)
                if doc:
                    yield doc


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """`ast.walk` without expressions, which hold no docstring and are most of a tree."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # it grows
        yield node
        for name in node._fields:
            if isinstance(inner := getattr(node, name, None), list):
                nodes += [n for n in inner if isinstance(n, _HOLDERS)]
