"""Model files in the GGUF format: their metadata, read within bounds, and what is wrong with it.

* `GgufFile(path)`: the keys, arrays and tensors of a file, by offset; no array is held in memory.
* `check(file)`: what an engine would refuse, guess or get wrong, as findings with key, offset and
  remedy.

Standard library only, but for chat templates, which are compiled by jinja2 in a process of their
own. The format is ggml's, and its names are used here: a key has a value, a tensor has dimensions
and a type.
"""

from __future__ import annotations

from typing import Any

from harness.forms.distribution import missing
from harness.tokenizer.gguf.known import TEMPLATE
from harness.tokenizer.gguf.reader import Array, GgufFile, Key, Malformed, Tensor
from harness.tokenizer.gguf.shape import GgufFinding, architecture, data, keys
from harness.tokenizer.gguf.vocabulary import tokenizer
from harness.tokenizer.isolation import ask

__all__ = ["Array", "GgufFile", "GgufFinding", "Key", "Malformed", "Tensor", "check"]


# Bytes.
LONGEST = 1 << 20


def complaints(path: str) -> list[tuple[str, str]]:
    """Return the chat templates of a file that do not compile, each with what is said of it.

    Nothing of a template is run, and no constant in it is worked out: `{{ 9 ** 9 ** 9 }}` compiles.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}`, with which templates mark what the assistant says."""

        tags = {"generation"}  # noqa: RUF012 - jinja2 reads it from the class

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        extensions=["jinja2.ext.loopcontrols", Generation],
    )
    environment.filters["tojson"] = str
    complained = []
    with GgufFile(path) as file:
        for key in file.keys.values():
            if not key.name.startswith(TEMPLATE) or not isinstance(key.value, bytes):
                continue
            if len(key.value) > LONGEST:
                complained.append(
                    (key.name, f"has {len(key.value)} bytes; at most {LONGEST} are checked")
                )
                continue
            try:
                environment.compile(key.value.decode())
            except UnicodeDecodeError:
                continue  # said of the key
            except TemplateError as error:
                line: Any = getattr(error, "lineno", None)
                complained.append((key.name, f"{error.message}{f' (line {line})' if line else ''}"))
            except (RecursionError, MemoryError, SyntaxError) as error:
                complained.append((key.name, f"{type(error).__name__}: it is nested too deeply"))
    return complained


_ORDER = ("error", "warning", "note")
_MEMORY = 512 << 20
_SECONDS = 5


def check(file: GgufFile, *, templates: bool = True) -> list[GgufFinding]:
    """List what is wrong with a file whose structure could be read.

    Args:
        file: the file.
        templates: whether to compile its chat templates, in a process of their own.

    Returns:
        The findings: errors, then warnings, then notes, each in the order of the file. Empty:
        nothing was found.

    Raises:
        Malformed: the file shrank while it was being read.
    """
    findings = [*keys(file), *architecture(file), *tokenizer(file), *data(file)]
    if templates and any(name.startswith(TEMPLATE) for name in file.keys):
        findings += _templates(file)
    return sorted(findings, key=lambda row: _ORDER.index(row.severity))


def _templates(file: GgufFile) -> list[GgufFinding]:
    """Chat templates that do not compile.

    A template is a program of whoever made the file: it is not run.
    """
    if lacks := missing("jinja2"):
        message = f"was not compiled, because {lacks}"
        return [
            GgufFinding(
                code="chat-template", severity="note", where=TEMPLATE, offset=-1, message=message
            )
        ]
    answer = ask("chat templates", [file.path], memory=_MEMORY, seconds=_SECONDS)
    return [
        GgufFinding(
            code="chat-template",
            severity="error",
            where=name,
            offset=file.keys[name].offset if name in file.keys else -1,
            message=f"does not compile: {complaint}",
            remedy="use the template of the original tokenizer",
        )
        for name, complaint in answer
    ]
