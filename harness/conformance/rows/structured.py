"""Rows about answers with a structure that the client states: JSON, a JSON schema, a forced tool.

A server refuses what it cannot do. To answer with free text is to ignore the client silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harness.conformance.answer import Answer
from harness.conformance.exchange import HTTPRequest
from harness.conformance.rows.row import (
    UNSTEADY,
    Asking,
    Judged,
    RowFinding,
    Setting,
    chat,
    completion,
    conforms,
    demand_same,
    honoured,
    one,
    ordinary,
    shown,
)
from harness.forms.strict_json import strict_json
from harness.forms.text import plural

TOKENS: Final = 96
"""More than twice what the longest answer under the schema has in bytes."""
COLORS: Final = ["red", "green", "blue"]
# Listed values and true or false: an answer under this schema ends, whatever the model is.
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "enum": COLORS},
        "bright": {"type": "boolean"},
    },
    "required": ["color", "bright"],
    "additionalProperties": False,
}
TOOL: Final = "paint"
ASKED: Final = "Choose a color. Answer with a JSON object with the fields color and bright."


def _messages() -> list[dict[str, str]]:
    return [{"role": "user", "content": ASKED}]


def _request(setting: Setting, label: str, *, stream: bool, more: dict[str, Any]) -> HTTPRequest:
    fields = {"messages": _messages(), "max_tokens": TOKENS} | more
    return chat(setting, label, stream=stream, **fields)


def _is_begun(text: str, finish: str | None) -> bool:
    """Whether a text was cut where what was to follow is not known: after space, in a thought, in
    an object or in a call that the server could not read yet.
    """
    begun = text.strip()
    return finish == "length" and (not begun or begun.startswith(("{", "<", "[")))


def _demand_object(text: str, finish: str | None, what: str) -> Any:
    """Return the JSON object that a text is."""
    try:
        value = strict_json(text.strip())
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    if _is_begun(text, finish):
        fact = f"{what} did not end in {TOKENS} tokens: {shown(text)}"
        raise Judged("CANNOT TELL", "unended", fact)
    raise Judged("VIOLATES", "ignored", f"{what} is not a JSON object: {shown(text)}")


def _object_of(answer: Answer, mode: str) -> Any:
    return _demand_object(answer.text, answer.finish, f"the {mode} answer")


def _matching(answer: Answer, mode: str) -> Any:
    """Return the object that an answer is, where it matches the schema."""
    value = _object_of(answer, mode)
    _demand_schema(value, f"the {mode} answer")
    return value


def _demand_schema(value: dict[str, Any], what: str) -> None:
    is_valid = (
        set(value) == {"color", "bright"}
        and value["color"] in COLORS
        and isinstance(value["bright"], bool)
    )
    if not is_valid:
        raise Judged("VIOLATES", "unmatched", f"{what} does not match the schema: {shown(value)}")


def _three(
    setting: Setting, what: str, more: dict[str, Any], judge: Callable[[Answer, str], Any]
) -> Asking[tuple[Answer, Answer]]:
    """Ask whole, whole again and streamed; return the first and the last.

    What the first breaks by itself needs no other: a server that ignores the client makes each of
    them as long as it may be.
    """
    yield from ordinary(completion(setting, "completion"))
    yield from honoured(chat(setting, "plain chat"))
    whole = yield from honoured(_request(setting, what, stream=False, more=more))
    judge(whole, "whole")
    again = yield from honoured(_request(setting, what, stream=False, more=more))
    stream = yield from honoured(_request(setting, f"{what}, streamed", stream=True, more=more))
    if (whole.text, _plain(whole)) != (again.text, _plain(again)):
        raise Judged("CANNOT TELL", "unsteady", UNSTEADY)
    return whole, stream


def _plain(answer: Answer) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in answer.tools]


def ask_json_object(setting: Setting) -> Asking[RowFinding]:
    """An answer that has to be a JSON object."""
    more = {"response_format": {"type": "json_object"}}
    whole, stream = yield from _three(setting, "JSON object", more, _object_of)
    of_whole = _object_of(whole, "whole")
    of_stream = _object_of(stream, "streamed")
    # Values and not texts: a server may write the whole answer anew, with other spaces.
    demand_same("text", "object", of_whole, of_stream)
    return conforms(f"{shown(whole.text)}, the same object when streamed")


def ask_json_schema(setting: Setting) -> Asking[RowFinding]:
    """An answer that has to be valid under a schema."""
    schema = {"name": "choice", "strict": True, "schema": SCHEMA}
    more = {"response_format": {"type": "json_schema", "json_schema": schema}}
    whole, stream = yield from _three(setting, "JSON schema", more, _matching)
    demand_same("text", "object", _matching(whole, "whole"), _matching(stream, "streamed"))
    return conforms(f"{shown(whole.text)}, the same object when streamed")


def _demand_call(answer: Answer, mode: str) -> Any:
    """Return the arguments of the forced tool's call."""
    if problems := [problem for problem in answer.problems if "tool" in problem]:
        raise Judged("VIOLATES", "schema", f"{mode}: {'; '.join(problems)}")
    if not answer.tools:
        if _is_begun(answer.text, answer.finish):
            fact = f"{mode}: no call in {TOKENS} tokens: {shown(answer.text)}"
            raise Judged("CANNOT TELL", "unended", fact)
        fact = f"{mode}: the tool is forced, but was not called: {shown(answer.text)}"
        raise Judged("VIOLATES", "ignored", fact)
    call = answer.tools[0]
    if call.name != TOOL:
        raise Judged("VIOLATES", "name", f"{mode}: the answer calls {call.name!r}, not {TOOL!r}")
    value = _demand_object(call.arguments, answer.finish, f"{mode}: the arguments")
    _demand_schema(value, f"{mode}: the arguments")
    return value


def _demand_cut(answer: Answer, count: int, uncut: Any, mode: str) -> None:
    """Demand that a call that was cut at so many tokens is not given as one that ended."""
    made = answer.usage.completion if answer.usage is not None else 0
    # Fewer tokens: it ended by itself.
    if made < count or answer.finish == "length":
        return
    arguments = answer.tools[0].arguments if answer.tools else answer.text
    try:
        # What follows a call may be cut as well, and then the call itself is complete.
        if strict_json(arguments) == uncut:
            return
    except ValueError:
        pass
    fact = f"{mode}: cut at {plural(count, 'token')}, but the finish reason is {answer.finish}"
    raise Judged("VIOLATES", "cut", f"{fact}: the arguments are {shown(arguments)}")


def ask_tools(setting: Setting) -> Asking[RowFinding]:
    """A tool that the client forces."""
    # Without `strict` OpenAI does not promise that the arguments are valid under the schema.
    function = {
        "name": TOOL,
        "description": "Paint a wall.",
        "strict": True,
        "parameters": SCHEMA,
    }
    more = {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": TOOL}},
    }
    whole, stream = yield from _three(setting, "forced tool", more, _demand_call)
    of_whole = _demand_call(whole, "whole")
    of_stream = _demand_call(stream, "streamed")
    demand_same("text", "arguments", of_whole, of_stream)
    made = whole.usage.completion if whole.usage is not None else 0
    count = made // 2
    if count == 0:
        return conforms(f"{TOOL}({of_whole}), the same when streamed")
    tried: list[str] = []
    for is_streamed, mode in ((False, "whole"), (True, "streamed")):
        cut = more | {"max_tokens": count}
        # A server may refuse what it knows to be too short for a call.
        request = _request(setting, f"forced tool, cut, {mode}", stream=is_streamed, more=cut)
        answer = yield from one(request)
        if answer.is_answer:
            _demand_cut(answer, count, of_whole, mode)
            tried.append(mode)
    limit = f"a limit of {plural(count, 'token')}"
    how = f"with {limit}, {' and '.join(tried)}" if tried else f"{limit} is refused"
    return conforms(f"{TOOL}({of_whole}), the same when streamed; {how}")
