"""The kinds of difference that rows find, each in a few words that hold wherever it is found.

A fact may have a long text of the server in it; these have none.
"""

from __future__ import annotations

from typing import Final

WRONG: Final[dict[str, str]] = {
    "alike": "both choices are copies of one text",
    "blocked": "the server does not answer during a long answer",
    "changed": "the next answer has another text",
    "clean": "a broken stream ends as if it were complete",
    "count": "the number of choices or logprobs is wrong",
    "cut": "a call that was cut is not marked as cut",
    "dead": "the server stopped answering",
    "differs": "the same prompt got different texts",
    "dropped": "messages are left out of the prompt",
    "echo": "the prompt does not come first",
    "error": "neither an answer nor a refusal",
    "exit code": "exit code 0 although a process was killed",
    "finish": "the finish reason is wrong",
    "greedy": "temperature 0 returned different texts",
    "healthy": "the server reports that it is healthy while it is not",
    "hung": "the client is not told that the engine was stopped",
    "ignored": "a parameter is accepted and ignored",
    "length": "max_tokens is not kept",
    "missing": "something that was requested is missing",
    "name": "another tool is called",
    "open": "a stream stays open after its finish reason",
    "order": "the text depends on earlier requests",
    "place": "the text is not cut where the stop string begins",
    "prompt": "prompt tokens are counted wrongly",
    "repeat": "the same request got different texts",
    "schema": "an answer is not in OpenAI's schema",
    "seed": "the same seed returned different texts",
    "stop": "the text does not end at the stop string",
    "streamed": "the same seed returned another text when streamed",
    "sum": "usage does not add up",
    "swapped": "a client got the answer of another client",
    "text": "the returned text is wrong",
    "together": "a parameter is not kept among other clients",
    "truncated": "part of a long prompt is not counted",
    "unmatched": "the JSON does not match the client's schema",
    "usage": "the usage is wrong, or differs when streamed",
    "value": "log probabilities are wrong, or differ when streamed",
    "works on": "the server keeps generating after its client left",
}
"""Of a promise that is violated."""
UNDECIDED: Final[dict[str, str]] = {
    "busy": "the server was busy",
    "close": "the difference may be chance",
    "moved": "texts differ, but none is another client's",
    "no stop": "no answer has a part that can be a stop string",
    "none": "the server ignores every parameter",
    "one text": "all texts are the same",
    "same": "two prompts have the same answer",
    "short": "an answer was too short",
    "sometimes": "violated in some repetitions only",
    "unanswered": "a request was not answered",
    "unclear": "the processor time is neither high nor low",
    "uncontrolled": "its control did not work",
    "uncounted": "the server reports no usage",
    "unended": "an answer was cut before it ended",
    "unmeasured": "the processor time is too low to compare",
    "unsteady": "the server does not repeat its texts",
    "unstruck": "no process could be stopped or killed",
    "withheld": "an answer spells the API key",
}
"""Of a promise about which the answers do not tell."""
