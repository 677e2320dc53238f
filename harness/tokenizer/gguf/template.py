"""Whether chat templates compile. Called in the process with limits, because a template may be made to cost."""

from __future__ import annotations

from typing import Any

from harness.tokenizer.gguf.known import TEMPLATE
from harness.tokenizer.gguf.reader import GgufFile

LONGEST = 1 << 20
"""Bytes."""


def complaints(path: str) -> list[tuple[str, str]]:
    """The chat templates of a file that do not compile, each with what is said of it.

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
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = str
    found = []
    with GgufFile(path) as file:
        for key in file.keys.values():
            if not key.name.startswith(TEMPLATE) or not isinstance(key.value, bytes):
                continue
            if len(key.value) > LONGEST:
                found.append((key.name, f"has {len(key.value)} bytes; at most {LONGEST} are looked at"))
                continue
            try:
                environment.compile(key.value.decode())
            except UnicodeDecodeError:
                continue  # said of the key
            except TemplateError as error:
                line: Any = getattr(error, "lineno", None)
                found.append((key.name, f"{error.message}{f' (line {line})' if line else ''}"))
            except (RecursionError, MemoryError, SyntaxError) as error:
                found.append((key.name, f"{type(error).__name__}: it is nested too deeply"))
    return found
