"""Read a rules file: the YAML that scenarios are written in, every mistake with line and column."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.forms.document import Document, Tree, parse_document
from harness.forms.problem import Path as Place
from harness.forms.problem import Problem, ScenarioError, closest, shown
from harness.forms.source import read_source
from harness.hub.problem import RulesError
from harness.hub.rules import Rules


def load_rules(path: Path) -> Rules:
    """Read and check a rules file.

    Raises:
        RulesError: every mistake, with file, line, column, key and what to do.
    """
    try:
        data = read_source(path, remedy="name a file of rules")
    except ScenarioError as error:
        raise _refusal(error) from None
    return parse_rules(data, name=str(path))


def parse_rules(data: bytes | str, *, name: str = "rules") -> Rules:
    """Check the text of a rules file; see `load_rules`.

    Raises:
        RulesError: every mistake.
    """
    problems: list[Problem] = []
    try:
        document = parse_document(data.encode() if isinstance(data, str) else data, name=name)
        problems += document.problems
        if document.tree is None and not problems:
            problems.append(document.marks.problem((), "is empty; write schema: 1 and rules: [...]"))
        else:
            found = Rules.model_validate(document.tree)
    except ScenarioError as error:
        raise _refusal(error) from None
    except ValidationError as error:
        places = [(_kept(one["loc"], document.tree), one) for one in error.errors(include_url=False)]
        problems += [_problem(place, one, document) for place, one in places if not _is_unknown(place, document)]
    if problems:
        raise _refusal(ScenarioError(problems))
    return found


def _refusal(error: ScenarioError) -> RulesError:
    return RulesError(tuple(map(str, error.problems)))


def _is_unknown(place: Place, document: Document) -> bool:
    """Whether the value could not be read, which is told already."""
    return any(place[:length] in document.holes for length in range(len(place) + 1))


def _problem(place: Place, error: ErrorDetails, document: Document) -> Problem:
    context, given = error.get("ctx", {}), error["input"]
    message, suggestion = _message(error), None
    match error["type"]:
        case "extra_forbidden":
            suggestion = closest(str(place[-1]), _keys_besides(str(place[-1])))
            return document.marks.problem(place, "is no key of this mapping", at_key=True, suggestion=suggestion)
        case "missing":
            return document.marks.problem(place, "is missing")
        case "complaint":
            message, suggestion = str(context["message"]), context.get("suggestion")
        case "literal_error" if words := re.findall("'([^']*)'", str(context["expected"])):
            message, suggestion = f"must be one of {', '.join(words)}", closest(given, words)
    found = shown(given) if isinstance(given, str | int | float | bool) else ""
    return document.marks.problem(place, message, found=found, suggestion=suggestion)


def _message(error: ErrorDetails) -> str:
    text = error["msg"].removeprefix("Value error, ")
    return text[0].lower() + text[1:] if text.startswith(("Input", "String", "Tuple")) else text


def _kept(loc: Iterable[str | int], tree: Tree) -> Place:
    """Pydantic's location without the tags of unions, which no file holds."""
    place: list[str | int] = []
    here = tree
    rest = list(loc)
    for index, part in enumerate(rest):
        if _has(here, part):
            here = here[part]
        elif index < len(rest) - 1 or not isinstance(here, dict):
            continue
        place.append(part)
    return tuple(place)


def _has(tree: Tree, part: str | int) -> bool:
    return part in tree if isinstance(tree, dict) else isinstance(tree, list) and part in range(len(tree))


def _keys_besides(word: str) -> list[str]:
    """All keys of the schema but one: one list is enough to guess what a misspelt key meant."""
    import harness.hub.rules as models

    names: set[str] = set()
    for model in vars(models).values():
        if isinstance(model, type) and issubclass(model, models.Closed):
            names |= {field.alias or name for name, field in model.model_fields.items()}
    return sorted(names - {word})
