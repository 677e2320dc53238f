"""Whether engines can use a GGUF file, and what they would guess or get wrong: all findings, the worst first."""

from __future__ import annotations

from harness.forms.extras import missing
from harness.tokenizer.folder import ask
from harness.tokenizer.gguf.finding import Finding
from harness.tokenizer.gguf.known import TEMPLATE
from harness.tokenizer.gguf.reader import GgufFile
from harness.tokenizer.gguf.shape import architecture, data, keys
from harness.tokenizer.gguf.vocabulary import tokenizer

_ORDER = ("error", "warning", "note")
_MEMORY, _SECONDS = 512 << 20, 5


def check(file: GgufFile, *, templates: bool = True) -> list[Finding]:
    """What is wrong with a file whose structure could be read.

    Args:
        file: the file.
        templates: whether to compile its chat templates, in a process of their own.

    Returns:
        The findings: errors, then warnings, then notes, each in the order of the file. Empty: nothing was found.

    Raises:
        Malformed: the file became shorter while it was read.
    """
    found = [*keys(file), *architecture(file), *tokenizer(file), *data(file)]
    if templates and any(name.startswith(TEMPLATE) for name in file.keys):
        found += _templates(file)
    return sorted(found, key=lambda one: _ORDER.index(one.severity))


def _templates(file: GgufFile) -> list[Finding]:
    """Chat templates that do not compile. A template is a program of whoever made the file: it is not run."""
    if lacks := missing("jinja2"):
        message = f"was not compiled: {lacks}"
        return [Finding(code="chat-template", severity="note", where=TEMPLATE, offset=-1, message=message)]
    answer = ask("chat templates", [file.path], memory=_MEMORY, seconds=_SECONDS)
    return [
        Finding(
            code="chat-template",
            severity="error",
            where=name,
            offset=file.keys[name].offset if name in file.keys else -1,
            message=f"does not compile: {complaint}",
            remedy="take the template of the original tokenizer",
        )
        for name, complaint in answer
    ]
