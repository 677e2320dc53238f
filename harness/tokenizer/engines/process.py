"""The process that an engine runs in: `python -m harness.tokenizer.engines.process`, one line of
JSON for each request.

It limits itself before it loads anything. A panic, an abort or an endless loop of an engine ends
this process alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from harness.tokenizer.child import limit, private_output
from harness.tokenizer.engines.adapters import (
    Adapter,
    LlamaCpp,
    LlamaCppModel,
    SentencePieceLibrary,
    TokenizersLibrary,
    TokenizeServer,
)
from harness.tokenizer.problem import TokenizerError, first_line

ADAPTERS: dict[str, Callable[[str], Any]] = {
    "tokenizers": TokenizersLibrary,
    "sentencepiece": SentencePieceLibrary,
    "llama.cpp": LlamaCpp,
    "llama.cpp model": LlamaCppModel,
    "server": TokenizeServer,
}


def main() -> int:
    """Answer requests until standard input ends."""
    begun = json.loads(sys.stdin.readline())
    limit(memory=begun["memory"], seconds=begun["seconds"])
    answers = private_output()
    try:
        adapter = ADAPTERS[begun["engine"]](begun["where"])
        _say(answers, {"about": adapter.about, "modes": adapter.modes})
    # A Rust panic is a BaseException, and each of them is an answer.
    except BaseException as error:  # noqa: BLE001
        _say(answers, {"refused": _words(error)})
        return 0
    for line in sys.stdin:
        request = json.loads(line)
        if "texts" in request:
            _say(answers, [_encoded(adapter, text, request["mode"]) for text in request["texts"]])
        elif "ids" in request:
            _say(answers, _or_refused(partial(adapter.continued, request["ids"], request["most"])))
        elif "round trip" in request:
            _say(answers, _or_refused(partial(_round_trip, adapter)))
        else:
            _say(answers, {"tokens": adapter.tokens(), "special": adapter.special()})
    return 0


def _encoded(adapter: Adapter, text: str, mode: Any) -> list[int] | str:
    try:
        return adapter.encode(text, mode)
    except BaseException as error:  # noqa: BLE001 - as above
        return f"error: {_words(error)}"


def _round_trip(adapter: Adapter) -> dict[str, str]:
    from harness.tokenizer.backend import round_trip

    return {
        "parts": round_trip(lambda text: _encoded(adapter, text, adapter.modes[0]), adapter.decode)
    }


def _or_refused(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return answer()
    except BaseException as error:  # noqa: BLE001 - as above
        return {"refused": _words(error)}


def _words(error: BaseException) -> str:
    kind = "" if isinstance(error, (TokenizerError, ValueError)) else f"{type(error).__name__}: "
    return f"{kind}{first_line(error)}"


def _say(answers: Any, answer: Any) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    raise SystemExit(main())
