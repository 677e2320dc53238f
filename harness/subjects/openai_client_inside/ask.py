"""Entry: plan the requests, send them, and report what came.

Events that end in `.begin`, `.first` and `.end` come as things happen. An event `request` follows
for each request when all have ended, in the order of the prompts, so that it depends on no clock.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from .exchange import CHAT, Exchange, Wanted, exchanged
from .reply import ServerReply, read, strict

THE_ONLY_ONE = "the-only-one"
LONGEST_NAME = 500
# Bytes of bodies that are kept as evidence, over all requests of a rank.
MOST_KEPT = 8 * 2**20
# Bytes of JSON that one value may have in an event of a request, and all answers together: with
# 400 requests, the most that lint lets through, a rank stays within its 2 MiB of events.
VALUE_ROOM = 768
ANSWERS_ROOM = 128 * 1024
MODES = {"whole": ("whole",), "streamed": ("streamed",), "both": ("whole", "streamed")}


@dataclass(frozen=True, kw_only=True)
class PlannedRequest:
    """One request to be sent.

    Attributes:
        n: its place in the order of sending.
        prompt: number of the prompt that its answer is taken for.
        sent: number of the prompt that is sent; another one only in a control.
        repetition: how often the prompt was planned before.
        mode: whole or streamed.
        client: how its answer is read.
        alone: whether it is sent before all others, by itself.
    """

    n: int
    prompt: int
    sent: int
    repetition: int
    mode: str
    client: str = "patient"
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class EndedRequest:
    """A request with its answer."""

    planned: PlannedRequest
    body: bytes
    exchange: Exchange
    reply: ServerReply

    @property
    def outcome(self) -> str:
        """Whether it was answered. What is not as it should be is not an answer."""
        status = self.exchange.status
        ended = self.exchange.ended
        if ended == "left":
            return "left"
        if ended == "refused" or (status is not None and (400 <= status < 500 or status == 501)):
            return "refused"
        is_whole = status == 200 and ended == "complete" and self.reply.text is not None
        is_sound = not self.reply.error and not self.reply.problems
        return "answered" if is_whole and is_sound else "failed"

    @property
    def answer(self) -> str | None:
        """Its text, if it was answered."""
        return self.reply.text if self.outcome == "answered" else None


# Nineteen arguments: each is one that a scenario may set, and all have defaults.
def run(
    context: Any,
    *,
    service: str = "engine",
    model: str = "the-only-one",
    prompts: Sequence[str | list[int]] = (
        "Once upon a time",
        "The capital of France is",
        "One, two, three,",
    ),
    api: str = "completions",
    mode: str = "whole",
    concurrency: int = 1,
    repeat: int = 1,
    order: str = "by-seed",
    alone: str = "none",
    max_tokens: int = 16,
    temperature_percent: int = 0,
    sampling_seed: int = 0,
    logprobs: int = 0,
    stop: str = "none",
    client: str = "patient",
    cancel_after: int = 1,
    pause_ms: int = 50,
    timeout: int = 60,
    defect: str = "none",
) -> None:
    """Entry: ask every prompt, as often and in as many ways as was said."""
    demand_client_library()
    wanted = Wanted(
        base=address(service),
        model=None if model == THE_ONLY_ONE else model,
        api=api,
        max_tokens=max_tokens,
        temperature=temperature_percent / 100,
        sampling_seed=sampling_seed,
        logprobs=logprobs,
        stop=stop,
        timeout=timeout,
        cancel_after=cancel_after,
        pause=pause_ms / 1000,
        drops_last=defect == "drops-last-chunk",
    )
    if model == THE_ONLY_ONE:
        wanted = with_model(wanted)
    first, others = plan(
        len(prompts),
        modes=MODES[mode],
        repeat=repeat,
        seed=context.seed if order == "by-seed" else None,
        alone=alone == "first",
        client=client,
        swaps=defect == "swaps-answers",
    )

    def send(planned: PlannedRequest) -> EndedRequest:
        return ask(context, wanted, planned, prompts[planned.sent])

    context.emit("requests.begin", count=len(first) + len(others), model=wanted.model)
    ended = [send(planned) for planned in first]
    if concurrency == 1:
        ended += [send(planned) for planned in others]
    else:
        # Events may be emitted from several threads. What a fault raises in one is raised here.
        with ThreadPoolExecutor(max_workers=concurrency) as threads:
            ended += threads.map(send, others)
    context.emit("requests.end")
    for one in sorted(ended, key=in_order):
        report(context, one, api)
    context.keep("exchanges", evidence(ended))
    summarize(context, ended, len(prompts))


def demand_client_library() -> None:
    """Raise an error that says what to do, if the HTTP library is missing."""
    try:
        import httpx2  # noqa: F401 - whether it is there
    except ImportError:
        raise ImportError(
            "the subject openai-client needs httpx2, which is not installed; run pip install"
            " 'rankproof[serve]'"
        ) from None


def address(service: str) -> str:
    """Return the address of a service, without /v1."""
    variable = f"RANKPROOF_SERVICE_{service.upper().replace('-', '_')}"
    base = os.environ.get(variable, "")
    if not base.startswith("http://"):
        raise ValueError(
            f"{variable} is {base!r}, which is not an address like http://HOST:PORT; set"
            " with.service to a service of the scenario"
        )
    return base.rstrip("/")


def with_model(wanted: Wanted) -> Wanted:
    """Name the model that the server lists.

    If it does not list exactly one, requests name none: most engines then take the one they have.
    """
    exchange = exchanged(wanted, "/v1/models")
    if exchange.status != 200 or exchange.ended != "complete":
        return wanted
    try:
        (listed,) = strict(exchange.data())["data"]
        name = listed["id"]
    except (KeyError, TypeError, ValueError):
        return wanted
    # It is told in an event, which a hostile name must not make too long.
    is_name = isinstance(name, str) and name.isprintable() and 0 < len(name) <= LONGEST_NAME
    return replace(wanted, model=name) if is_name else wanted


# Seven arguments: they are the subject's own, as the scenario names them.
def plan(
    prompts: int,
    *,
    modes: Sequence[str],
    repeat: int,
    seed: int | None,
    alone: bool,
    client: str,
    swaps: bool,
) -> tuple[list[PlannedRequest], list[PlannedRequest]]:
    """Return the requests that are sent alone, and then the others, in the order of sending."""
    first = [
        PlannedRequest(n=n, prompt=n, sent=n, repetition=0, mode=modes[0], alone=True)
        for n in range(prompts if alone else 0)
    ]
    wishes = [
        (repetition, prompt, mode)
        for repetition in range(repeat)
        for prompt in range(prompts)
        for mode in modes
    ]
    if seed is not None:
        random.Random(seed).shuffle(wishes)  # noqa: S311 - an order that can be repeated
    others: list[PlannedRequest] = []
    for repetition, prompt, mode in wishes:
        # The bug of this control: two answers that came together change places.
        is_swapped = swaps and prompt < 2 and repetition == 0 and mode == modes[0]
        planned = PlannedRequest(
            n=len(first) + len(others),
            prompt=prompt,
            sent=1 - prompt if is_swapped else prompt,
            repetition=repetition,
            mode=mode,
        )
        others.append(planned)
        if client != "patient":
            # Beside each patient request one that is not, so that its neighbours are seen.
            others.append(
                replace(planned, n=planned.n + 1, sent=prompt, mode="streamed", client=client)
            )
    return first, others


def ask(
    context: Any, wanted: Wanted, planned: PlannedRequest, prompt: str | list[int]
) -> EndedRequest:
    """Send one request, and report its beginning and its end."""
    streamed = planned.mode == "streamed"
    path = "/v1/chat/completions" if wanted.api == CHAT else "/v1/completions"
    body = wanted.body(prompt, streamed=streamed)
    context.emit("request.begin", n=planned.n, prompt=planned.prompt)
    exchange = exchanged(
        wanted,
        path,
        body,
        client=planned.client,
        first=lambda: context.emit("request.first", n=planned.n),
    )
    context.emit(
        "request.end",
        n=planned.n,
        status=exchange.status,
        ended=exchange.ended,
        chunks=len(exchange.chunks),
        bytes=len(exchange.data()),
        ms_first=exchange.chunks[0][0] if exchange.chunks else None,
        ms=exchange.ms,
    )
    reply = read(exchange, wanted, streamed=streamed)
    return EndedRequest(planned=planned, body=body, exchange=exchange, reply=reply)


def in_order(one: EndedRequest) -> tuple[int, bool, int, str, str]:
    """Place a request by what it is, whenever it was sent."""
    planned = one.planned
    # Alone first, and whole before streamed.
    return (
        planned.prompt,
        not planned.alone,
        planned.repetition,
        "" if planned.client == "patient" else planned.client,
        "" if planned.mode == "whole" else planned.mode,
    )


def report(context: Any, one: EndedRequest, api: str) -> None:
    """Emit what came of one request. Times are in `request.end`."""
    planned = one.planned
    reply = one.reply
    context.emit(
        "request",
        n=planned.n,
        prompt=planned.prompt,
        repetition=planned.repetition,
        mode=planned.mode,
        api=api,
        client=planned.client,
        alone=planned.alone,
        outcome=one.outcome,
        status=one.exchange.status,
        ended=one.exchange.ended,
        error=reply.error,
        problems=reply.problems,
        text=fitted(reply.text, VALUE_ROOM),
        ids=fitted(reply.ids, VALUE_ROOM),
        logprobs=fitted(reply.logprobs, VALUE_ROOM),
        finish=reply.finish,
        usage=reply.usage,
        sha256=hashlib.sha256(one.exchange.data()).hexdigest(),
    )


def summarize(context: Any, ended: Sequence[EndedRequest], prompts: int) -> None:
    """Emit what all requests together show.

    A comparison that was not made is None, and one with a missing answer is False.
    """
    outcomes = [one.outcome for one in ended]
    alone: list[str | None] = []
    by_prompt: list[dict[tuple[int, str, str], str | None]] = [{} for _ in range(prompts)]
    for one in sorted(ended, key=in_order):
        planned = one.planned
        if planned.alone:
            alone.append(one.answer)
        elif one.outcome != "left":
            key = (planned.repetition, planned.mode, planned.client)
            by_prompt[planned.prompt][key] = one.answer
    # Of each prompt the first that was asked patiently.
    firsts = [next(iter(texts.values()), None) for texts in by_prompt]
    differing = [
        number
        for number, texts in enumerate(by_prompt)
        if len(texts) > 1 and (None in texts.values() or len(set(texts.values())) > 1)
    ]
    pairs = [
        (text, texts[repetition, "streamed", who])
        for texts in by_prompt
        for (repetition, mode, who), text in texts.items()
        if mode == "whole" and (repetition, "streamed", who) in texts
    ]
    beside = [
        (alone[number], text)
        for number, texts in enumerate(by_prompt if alone else [])
        for text in texts.values()
    ]
    # Nobody agrees on answers that are not there.
    answers = None if None in firsts else firsts
    context.emit(
        "requests.done",
        count=len(ended),
        answered=outcomes.count("answered"),
        refused=outcomes.count("refused"),
        failed=outcomes.count("failed"),
        left=outcomes.count("left"),
        malformed=sum(bool(one.reply.problems) for one in ended),
        answers=answers and [fitted(text, ANSWERS_ROOM // prompts) for text in answers],
        texts=answers and hashlib.sha256(json.dumps(answers).encode()).hexdigest(),
        same=not differing if any(len(texts) > 1 for texts in by_prompt) else None,
        differing=differing,
        streamed_equal=all_equal(pairs),
        alone_equal=all_equal(beside),
    )


def all_equal(pairs: Sequence[tuple[str | None, str | None]]) -> bool | None:
    """Return whether both of every pair are there and equal; None without a pair."""
    if not pairs:
        return None
    return all(one is not None and one == other for one, other in pairs)


def fitted(value: Any, room: int) -> Any:
    """Return a value for an event: as it is, or its sha256 if its JSON is longer than `room`.

    Of a text its beginning is shown as well. Different values stay different.
    """
    written = json.dumps(value)
    if len(written) <= room:
        return value
    named = f"sha256:{hashlib.sha256(written.encode()).hexdigest()}"
    # A character has up to 12 bytes in JSON.
    return f"{value[: room // 16]}… {named}" if isinstance(value, str) else named


def evidence(ended: Sequence[EndedRequest]) -> bytes:
    """Return all exchanges as lines of JSON: what was sent, and every chunk with its time.

    A chunk is a text, or in base64 where it is not UTF-8. What is beyond the bound is left out.
    """
    left = MOST_KEPT
    lines: list[str] = []
    for one in sorted(ended, key=lambda one: one.planned.n):
        exchange = one.exchange
        kept: list[dict[str, Any]] = []
        for ms, data in exchange.chunks:
            if len(data) > left:
                break
            left -= len(data)
            kept.append({"ms": ms, **packed(data)})
        line = {
            "n": one.planned.n,
            "sent": one.body.decode(),
            "status": exchange.status,
            "headers": exchange.headers,
            "ended": exchange.ended,
            "chunks": kept,
            "chunks_left_out": len(exchange.chunks) - len(kept),
        }
        lines.append(json.dumps(line) + "\n")
    return "".join(lines).encode()


def packed(data: bytes) -> dict[str, str]:
    """Return bytes as JSON can hold them."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
