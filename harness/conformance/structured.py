"""What the correct server answers where a client asks for JSON or forces a tool.

It serves schemas whose properties are listed values or true and false, so an answer always ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_PROPERTIES = 16


class RefusedRequest(Exception):
    """What a client asked for that is not served; the message is the answer."""


@dataclass(frozen=True)
class StructuredAnswer:
    """A JSON text, and the tool that it is the arguments of; without a tool it is the answer."""

    text: str
    tool: str


def structured_answer(
    fields: Mapping[str, Any], prompt: str, *, is_chat: bool
) -> StructuredAnswer | None:
    """Return what a request for JSON or a tool is answered with; None where it asks for neither.

    Raises:
        RefusedRequest: it asks for what is not served.
    """
    wanted = fields.get("response_format")
    tools = fields.get("tools")
    choice = fields.get("tool_choice")
    if not is_chat:
        if wanted is not None or tools is not None:
            raise RefusedRequest(
                "response_format and tools are supported only for chat completions"
            )
        return None
    if tools is not None and choice != "none":
        return StructuredAnswer(*_call(tools, choice, prompt))
    if wanted is None or wanted == {"type": "text"}:
        return None
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "json_object":
        return StructuredAnswer(json.dumps({"answer": _drawn(prompt, "answer", 1000)}), "")
    if kind != "json_schema" or not isinstance(wanted.get("json_schema"), dict):
        raise RefusedRequest("response_format must be text, json_object or json_schema")
    return StructuredAnswer(_instance(wanted["json_schema"].get("schema"), prompt), "")


def _call(tools: Any, choice: Any, prompt: str) -> tuple[str, str]:
    """Return the arguments and the name of the tool that a request forces."""
    try:
        parameters = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
        name = choice["function"]["name"]
    except (KeyError, TypeError):
        raise RefusedRequest("tools are supported only if tool_choice names a function") from None
    if not isinstance(name, str) or name not in parameters:
        raise RefusedRequest("tool_choice names a function that is not in tools")
    return _instance(parameters[name], prompt), name


def _drawn(prompt: str, name: str, count: int) -> int:
    """Return a number below `count`, which follows from the prompt."""
    digest = hashlib.sha256(f"{name}: {prompt}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % count


def _instance(schema: Any, prompt: str) -> str:
    """Return a JSON text that is valid under a schema."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not 0 < len(properties) <= MOST_PROPERTIES:
        raise RefusedRequest("the schema must describe an object with properties")
    value = {}
    for name, inner in properties.items():
        kind = inner.get("type") if isinstance(inner, dict) else None
        listed = inner.get("enum") if isinstance(inner, dict) else None
        if kind == "boolean":
            listed = [False, True]
        if not isinstance(listed, list) or not listed:
            raise RefusedRequest("each property must be a boolean or have an enum")
        value[name] = listed[_drawn(prompt, name, len(listed))]
    return json.dumps(value, ensure_ascii=False)
