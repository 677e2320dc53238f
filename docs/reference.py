"""Writes docs/api.md from docstrings, docs/kinds.md from the registries, and the table of
docs/engines.md.

Run `python docs/reference.py`. `tests/docs` fails where a page is not what this writes.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

DOCS = Path(__file__).resolve().parent
sys.path.append(str(DOCS.parent / "packages" / "integrity" / "src"))  # where it is not installed
WIDTH = 120
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
ENTRY = re.compile(r"(?P<names>[\w*`][\w*`, ]*): (?P<text>.*)", re.DOTALL)

# Heading, what stands below it, module, names (none: what its `__all__` names).
PAGES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "What a rank is given",
        (
            "The first argument of every subject. [scenarios.md](scenarios.md) says how a scenario"
            " names the function."
        ),
        "harness.rank.context",
        ("Context", "Group"),
    ),
    (
        "What a tokenizer is",
        "[tokenizer.md](tokenizer.md) says what is covered, and what is comparable with what.",
        "harness.tokenizer",
        (),
    ),
    (
        "Loading a tokenizer",
        "[tokenizer.md](tokenizer.md#loading) says what is guaranteed.",
        "harness.tokenizer.loading",
        (),
    ),
    (
        "The integrity library",
        (
            "The distribution `rankproof-integrity`: [its"
            " guide](../packages/integrity/docs/integrity.md) names the rest."
        ),
        "rankproof_integrity",
        (
            *("ReliableMessageTransport", "DistributedBarrier", "TokenStreamSynchronizer"),
            *("DeviceCommunicationManager", "TokenTransferValidator", "NetworkHealthMonitor"),
            *(
                "TokenValidator",
                "SequenceIntegrityChecker",
                "EncodingValidator",
                "CorruptionDetector",
            ),
            *("RecoveryManager", "FallbackCoordinator"),
            *("watch", "watch_mlx", "CheckedStream", "token_bytes", "spells"),
        ),
    ),
    ("GGUF files", "[gguf.md](gguf.md) lists what is found.", "harness.tokenizer.gguf", ()),
    (
        "A hub that fails on purpose",
        "[hub.md](hub.md) has the rules and the log.",
        "harness.hub",
        (),
    ),
    ("The hub's layouts", "[hub.md](hub.md#layouts) lists them.", "harness.hub.layouts", ()),
    (
        "A kind of fault",
        (
            "What a plug-in of the group `rankproof.faults` is a subclass of; [an"
            " example](examples/plugin/README.md)."
        ),
        "harness.faults.fault",
        ("Fault", "FaultAtEvent", "FaultProperties", "Place"),
    ),
    ("The proof of a fault", "What `Fault.proof` returns.", "harness.faults.proof", ("Proof",)),
    (
        "What a fault may do to a world",
        "What `Fault.strike` and `Fault.undo` are given.",
        "harness.faults.world_control",
        (),
    ),
    (
        "A kind of check",
        "What a plug-in of the group `rankproof.checks` is a subclass of.",
        "harness.checks.check",
        ("Check", "ValueCheck", "OverTrials", "CheckProperties", "FailsAt"),
    ),
    (
        "What a check finds",
        "What `Check.judge` returns.",
        "harness.checks.finding",
        ("Finding", "RankFinding"),
    ),
    (
        "A trial's events",
        "What `Check.judge` and `Fault.proof` are given.",
        "harness.history",
        ("History",),
    ),
    (
        "A backend",
        "What a plug-in of the group `rankproof.backends` is an instance of.",
        "harness.backends.backend",
        ("Backend", "BackendProperties", "PeerGone", "Rendezvous", "Opened", "Ports"),
    ),
    (
        "A ready-made subject",
        "What a plug-in of the group `rankproof.subjects` is an instance of.",
        "harness.subjects.subject",
        ("ReadySubject", "Argument"),
    ),
    (
        "A view",
        "What a plug-in of the group `rankproof.views` is an instance of.",
        "harness.report.view",
        ("View", "Basis"),
    ),
)

API = """\
# Public API

<!-- Written by docs/reference.py from the docstrings: change those, then run it. -->

What code of yours may import, and nothing else: the rest of `harness` changes without notice. The import name is
`harness`, the distribution is `rankproof` ([why](adr/0042-the-import-name-stays-harness.md)). Until the first release
these names may change too; the [changelog](../CHANGELOG.md) says so.
"""

KINDS = """\
# Kinds

<!-- Written by docs/reference.py from the registries: change the kinds, then run it. -->

Everything a scenario can name by `kind`, `backend` or `use`, with its options. `rankproof list faults`, `rankproof
list checks`, `rankproof list backends` and `rankproof list --subjects` print the same, with those of plug-ins, and
say whether each can run on this machine. [scenarios.md](scenarios.md) explains how they are used, [api.md](api.md)
how one is written.
"""


def wrapped(text: str, *, first: str = "", rest: str = "") -> str:
    """A paragraph at the width of all prose; `code` is not torn apart at a hyphen."""
    return textwrap.fill(
        " ".join(text.split()), WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def blocks(docstring: str) -> Iterator[str]:
    """A docstring in Google's style as Markdown: paragraphs, code, lists, and its sections as
    lists.
    """
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        lines = block.splitlines()
        if not lines:
            continue
        if SECTION.fullmatch(lines[0]):
            yield f"{lines[0]}\n"
            yield "\n".join(_entries(textwrap.dedent("\n".join(lines[1:]))))
        elif lines[0].startswith("    ") or any("──" in line for line in lines):
            word = "text" if "──" in block else "python"
            yield "\n".join([f"```{word}", *textwrap.dedent(block).splitlines(), "```"])
        elif lines[0].startswith("* "):
            items = re.split(r"(?m)^\* ", block)[1:]
            yield "\n".join(wrapped(item, first="* ", rest="  ") for item in items)
        else:
            yield wrapped(block.replace("``", "`"))


def _entries(text: str) -> Iterator[str]:
    """The entries of a section; what is indented belongs to the one before."""
    for entry in re.split(r"\n(?=\S)", text):
        match = ENTRY.fullmatch(entry)
        if match is None:
            yield wrapped(entry, first="* ", rest="  ")
        else:
            names = ", ".join(f"`{name.strip(' `')}`" for name in match["names"].split(","))
            yield wrapped(f"{names}: {match['text'].replace('``', '`')}", first="* ", rest="  ")


def called(name: str, function: Any, *, method: bool = False) -> str:
    """How something is called, with its annotations, as code."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if method else 0 :]
    written: list[str] = []
    starred = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            written.append("*")
        text = (
            "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        ) + one.name
        starred = starred or one.kind is one.VAR_POSITIONAL
        if one.annotation is not one.empty:
            text += f": {_annotation(one.annotation)}"
        if one.default is not one.empty:
            text += f" = {_default(one.default)}"
        written.append(text)
    returns = signature.return_annotation
    end = (
        ""
        if returns is signature.empty or inspect.isclass(function)
        else f" -> {_annotation(returns)}"
    )
    line = f"{name}({', '.join(written)}){end}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in written) + f"){end}"


def _annotation(value: object) -> str:
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return re.sub(r"\b(?:typing|collections\.abc|pathlib|harness(?:\.\w+)+)\.", "", text)


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return str(value)
    text = repr(value)
    return "…" if " at 0x" in text or "factory" in text else text


def described(name: str, thing: Any) -> Iterator[str]:
    """A class or a function as blocks of Markdown."""
    yield f"### `{name}`"
    if not inspect.isclass(thing):
        yield f"```python\n{called(name, thing)}\n```"
        yield from blocks(thing.__doc__ or "")
        return
    if dataclasses.is_dataclass(thing):
        # What has a private field is made by us alone.
        if not any(field.name.startswith("_") for field in dataclasses.fields(thing)):
            yield f"```python\n{called(name, thing)}\n```"
    elif (
        "__init__" in vars(thing)
        and not issubclass(thing, (Exception, BaseModel))
        and not _is_protocol(thing)
    ):
        yield (
            f"```python\n{called(name, thing.__init__, method=True).removesuffix(' -> None')}\n```"
        )
    if issubclass(thing, Exception):
        yield f"A `{thing.__mro__[1].__name__}`."
    yield from blocks(vars(thing).get("__doc__") or "")
    if issubclass(thing, enum.Enum):
        yield "\n".join(f"* `{one.name}`: {one.value}" for one in thing)
        return
    if issubclass(thing, BaseModel):
        own = {key: one for key, one in thing.model_fields.items() if _is_own(thing, key)}
        # A model whose docstring tells of its fields describes none of them.
        if any(one.description for one in own.values()):
            yield options(own)
    for key, member in vars(thing).items():
        yield from _member(key, member)


def _is_protocol(thing: type) -> bool:
    return getattr(thing, "_is_protocol", False)


def _is_own(thing: type[BaseModel], key: str) -> bool:
    return key in vars(thing).get("__annotations__", {})


def _member(key: str, member: Any) -> Iterator[str]:
    if key.startswith(("_", "model_")):
        return
    if isinstance(member, property):
        returns = inspect.signature(member.fget).return_annotation if member.fget else ""
        yield f"#### `{key}`"
        yield f"```python\n{key}: {_annotation(returns)}\n```"
        yield from blocks(member.__doc__ or "")
        return
    function = getattr(member, "__func__", member)
    if inspect.isfunction(function) and function.__doc__:
        yield f"#### `{key}`"
        yield (
            f"```python\n{called(key, function, method=not isinstance(member, staticmethod))}\n```"
        )
        yield from blocks(function.__doc__)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [
        head,
        ("---",) * len(head),
        *(tuple(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def options(fields: Mapping[str, Any]) -> str:
    """The fields of a model as a table."""
    rows = []
    for name, field in fields.items():
        more = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        default = more.get("default", field.default)
        shown = (
            "required"
            if default is PydanticUndefined and field.default_factory is None
            else f"`{_plain(default)}`"
        )
        rows.append((f"`{field.alias or name}`", shown, field.description or ""))
    return table(("option", "default", "meaning"), rows)


def _plain(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def api() -> str:
    """The text of docs/api.md."""
    parts = [API]
    for heading, about, where, names in PAGES:
        module = importlib.import_module(where)
        parts += [f"## {heading}", wrapped(f"`{where}`. {about}")]
        for name in names or _public(module):
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                parts += described(name, thing)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _public(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, one in vars(module).items()
        if inspect.isclass(one) and one.__module__ == module.__name__
    ]


def kinds() -> str:
    """The text of docs/kinds.md."""
    from harness import backends, checks, faults, subjects
    from harness.report.view import VIEWS

    parts = [KINDS, "## Faults", "The keys `id`, `ranks` and `arm` are those of every fault."]
    for name, kind in _ours(faults.KINDS):
        parts += [
            f"### `{name}`",
            f"{wrapped(_sentence(kind.does))}\n{wrapped(f'Needs: {_sentence(kind.needs)}')}",
        ]
        own = {
            key: field
            for key, field in kind.model_fields.items()
            if key not in {"id", "ranks", "arm", "kind"}
        }
        parts += [options(own)] if own else []
        parts.append(f"```yaml\n{kind.example}\n```")
    parts += ["## Checks", "The keys `id` and `ranks` are those of every check that asks ranks."]
    for name, kind in _ours(checks.KINDS):
        parts += [f"### `{name}`", *blocks(kind.__doc__ or "")]
        own = {
            key: field
            for key, field in kind.model_fields.items()
            if key not in {"id", "ranks", "kind"}
        }
        parts += [options(own)] if own else []
        parts.append(f"```yaml\n{kind.example}\n```")
    parts.append("## Backends")
    rows = [
        (f"`{name}`", one.description, ", ".join(f"`{module}`" for module in one.properties.modules) or "nothing",
         "yes" if one.properties.makes_a_group else "no")
        for name, one in _ours(backends.KINDS)
    ]  # fmt: skip
    parts.append(table(("backend", "joins ranks by", "imports in a rank", "makes a group"), rows))
    parts.append("## Ready-made subjects")
    for name, subject in _ours(subjects.READY):
        parts += [
            f"### `{name}`",
            wrapped(f"{_sentence(subject.does)} On {', '.join(subject.backends)}."),
        ]
        taken = [
            (
                f"`{key}`",
                f"`{one.default}`",
                f"{one.does}{'; one of ' + ', '.join(one.choices) if one.choices else ''}",
            )
            for key, one in subject.arguments.items()
        ]
        parts.append(table(("argument", "default", "meaning"), taken))
        said = [
            (f"`{event}`", ", ".join(f"`{key}`" for key in keys) or "nothing")
            for event, keys in subject.emits.items()
        ]
        parts.append(table(("event", "its values"), said))
    parts.append("## Views")
    shown = [
        (f"`{one.name}`", one.media_type, "yes" if one.checked else "no") for _, one in _ours(VIEWS)
    ]
    parts.append(table(("file", "type", "checked by `verify`"), shown))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _ours(registry: Any) -> list[tuple[str, Any]]:
    return [(name, kind) for name, kind in registry.items() if name not in registry.plugins]


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def engines() -> str:
    """docs/engines.md, with the table of what the installed libraries offer of the models that are
    made here.
    """
    from harness.engines.models import MODELS
    from harness.engines.offers import ENGINES, LIBRARIES, installed, refusal

    rows, refused = [], dict[tuple[str, str], list[str]]()
    for name, recipe in MODELS.items():
        cells = []
        for engine in ENGINES:
            why = {size: refusal(engine, recipe.config(), ranks=size) for size in (1, 2, 3, 4)}
            cells.append(
                ", ".join(str(size) for size, reason in why.items() if not reason) or "refused"
            )
            for reason in filter(None, why.values()):
                models = refused.setdefault((engine, reason), [])
                models += [f"`{name}`"] if f"`{name}`" not in models else []
        rows.append((f"`{name}`", *cells))
    libraries = " and ".join(
        f"{called} {installed(library)}" for library, called in LIBRARIES.items()
    )
    lines = [
        f"* `{engine}` of {', '.join(models)}: {reason}."
        for (engine, reason), models in refused.items()
    ]
    parts = [
        f"Of {libraries}:",
        table(("model", *(f"`{one}`" for one in ENGINES)), rows),
        "Refused are:",
    ]
    text = "\n\n".join([*parts, "\n".join(wrapped(line, rest="  ") for line in lines)])
    begin, end = "<!-- engines -->\n", "<!-- end of engines -->\n"
    before, _, rest = (DOCS / "engines.md").read_text(encoding="utf-8").partition(begin)
    return f"{before}{begin}\n{text}\n\n{end}{rest.partition(end)[2]}"


PAGES_WRITTEN = {DOCS / "api.md": api, DOCS / "engines.md": engines, DOCS / "kinds.md": kinds}


def main() -> int:
    """Write both pages."""
    for path, text in PAGES_WRITTEN.items():
        path.write_text(text(), encoding="utf-8")
        print(path.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
