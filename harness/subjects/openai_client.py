"""The ready subject `openai-client`: every rank asks a running server over OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.subjects.subject import NO_DEFECT, Argument, ReadySubject

# With more, the events of a rank could exceed their limit of 2 MiB.
MOST_REQUESTS = 400
NONE = "none"


def _misfit(arguments: Mapping[str, object], _ranks: int) -> tuple[str, str] | None:
    """Return the argument with which no server could give the answers that are asked for, or the
    events would not fit.
    """
    prompts = arguments["prompts"]
    repeat = arguments["repeat"]
    assert isinstance(prompts, list | tuple)
    assert isinstance(repeat, int)
    if arguments["api"] == "chat" and not all(isinstance(prompt, str) for prompt in prompts):
        return "prompts", "must be strings with api: chat, because a message cannot be token ids"
    if arguments["defect"] == "swaps-answers" and len(prompts) < 2:
        return "defect", (
            "cannot be swaps-answers with one prompt; add a second prompt that differs"
        )
    if arguments["defect"] == "drops-last-chunk" and arguments["mode"] == "whole":
        return "defect", (
            "cannot be drops-last-chunk with mode: whole, because whole answers are not streamed"
        )
    requests = len(prompts) * repeat
    requests *= 2 if arguments["mode"] == "both" else 1
    requests *= 1 if arguments["client"] == "patient" else 2
    requests += len(prompts) if arguments["alone"] == "first" else 0
    if requests > MOST_REQUESTS:
        return "repeat", f"makes {requests} requests per rank; at most {MOST_REQUESTS} are allowed"
    return None


def _question(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Return what decides an answer: without sampling its seed does not."""
    drawn = ("sampling_seed",) if arguments["temperature_percent"] else ()
    return ("prompts", "api", "max_tokens", "temperature_percent", "stop", *drawn)


OPENAI_CLIENT = ReadySubject(
    does=(
        "sends concurrent requests to a running server over OpenAI's API, streamed and not, and"
        " reports every answer as it arrived"
    ),
    file=Path(__file__).with_name("openai_client_inside") / "ask.py",
    backends=("none", "gloo", "mlx-ring", "nccl"),
    arguments={
        "service": Argument(
            does="the service that receives the requests; its address is in RANKPROOF_SERVICE_NAME",
            default="engine",
        ),
        "model": Argument(
            does=(
                "model that requests name. the-only-one: the model that /v1/models lists; if it"
                " does not list exactly one, requests name no model"
            ),
            default="the-only-one",
        ),
        "prompts": Argument(
            does="the prompts: strings, or lists of token ids",
            default=("Once upon a time", "The capital of France is", "One, two, three,"),
        ),
        "api": Argument(
            does="chat: each prompt is a user message",
            default="completions",
            choices=("completions", "chat"),
        ),
        "mode": Argument(
            does=(
                "the form in which an answer is requested; both: each prompt is sent once for a"
                " whole answer and once for a streamed answer"
            ),
            default="whole",
            choices=("whole", "streamed", "both"),
        ),
        "concurrency": Argument(
            does="requests that a rank sends at the same time", default=1, at_most=256
        ),
        "repeat": Argument(does="how often each prompt is sent", default=1, at_most=MOST_REQUESTS),
        "order": Argument(
            does="by-seed: the order of the requests follows from the seed of the trial and rank",
            default="by-seed",
            choices=("by-seed", "as-given"),
        ),
        "alone": Argument(
            does="first: each prompt is also sent once before all other requests, one at a time",
            default=NONE,
            choices=(NONE, "first"),
        ),
        "max_tokens": Argument(
            does="maximum number of tokens of an answer", default=16, at_most=65_536
        ),
        "temperature_percent": Argument(
            does="temperature in hundredths: 70 is 0.7; 0: the best token is chosen",
            default=0,
            at_least=0,
            at_most=200,
        ),
        "sampling_seed": Argument(
            does="seed that is sent if the temperature is not 0", default=0, at_least=0
        ),
        "logprobs": Argument(
            does=("number of most likely tokens to request with log probabilities; 0: none"),
            default=0,
            at_least=0,
            at_most=20,
        ),
        "stop": Argument(
            does="text at which an answer ends; none: no stop text is sent", default=NONE
        ),
        "client": Argument(
            does=(
                "other than patient: each request is followed by a streamed request for the same"
                " prompt, whose client misbehaves. cancels: it closes the connection; resets: it"
                " resets it; slow: it waits after each chunk, with a small receive buffer"
            ),
            default="patient",
            choices=("patient", "cancels", "resets", "slow"),
        ),
        "cancel_after": Argument(
            does="chunks after which a client cancels or resets", default=1, at_most=10_000
        ),
        "pause_ms": Argument(
            does="milliseconds that a slow client waits after each chunk",
            default=50,
            at_most=60_000,
        ),
        "timeout": Argument(does="seconds for one request", default=60, at_most=3600),
        "defect": Argument(
            does=(
                "drops-last-chunk: the client loses the last text of each stream; swaps-answers:"
                " the first answers to the first two prompts are swapped"
            ),
            default=NO_DEFECT,
            choices=(NO_DEFECT, "drops-last-chunk", "swaps-answers"),
        ),
    },
    emits={
        "requests.begin": ("count", "model"),
        "request.begin": ("n", "prompt"),
        "request.first": ("n",),
        "request.end": ("n", "status", "ended", "chunks", "bytes", "ms_first", "ms"),
        "requests.end": (),
        "request": (
            "n",
            "prompt",
            "repetition",
            "mode",
            "api",
            "client",
            "alone",
            "outcome",
            "status",
            "ended",
            "error",
            "problems",
            "text",
            "ids",
            "logprobs",
            "finish",
            "usage",
            "sha256",
        ),
        "requests.done": (
            "count",
            "answered",
            "refused",
            "failed",
            "left",
            "malformed",
            "answers",
            "texts",
            "same",
            "differing",
            "streamed_equal",
            "alone_equal",
        ),
    },
    misfit=_misfit,
    question=_question,
)
