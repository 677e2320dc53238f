"""Rows about parameters in other modes of a server: in chats, and sampled in every mode.

A parameter that is honoured in completions and ignored in chats is a defect of its own, so each of
these rows has a control that ignores it in chats alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harness.conformance.answer import Answer
from harness.conformance.exchange import HTTPRequest
from harness.conformance.rows.alike import demand_unlike
from harness.conformance.rows.answering import (
    LENGTHS,
    demand_counted_length,
    demand_length,
    demand_not_ended,
)
from harness.conformance.rows.parameters import (
    HOT,
    SEEDED,
    demand_distinct,
    demand_repeated,
    demand_stopped,
    stop_of,
    stops_of,
)
from harness.conformance.rows.row import (
    UNSTEADY,
    Asking,
    Judged,
    RowFinding,
    Setting,
    all_alike,
    chat,
    completion,
    conforms,
    demand_same,
    honoured,
    one,
    ordinary,
    shown,
    streamed,
    texts,
)
from harness.forms.text import plural

Making = Callable[..., HTTPRequest]
MODES: Final = (("whole", False), ("streamed", True))
SAMPLES: Final = 3
COLD_SEEDS: Final = (1, 2)


def ask_chat_stop(setting: Setting) -> Asking[RowFinding]:
    """Stop strings from the server's own answers in two chats."""
    yield from ordinary(completion(setting, "completion"))
    stops: list[str] = []
    has_list = False
    for prompt in texts(setting, 2):
        messages = [{"role": "user", "content": prompt}]
        without = chat(setting, "chat without stop", messages=messages)
        base = yield from honoured(without)
        again = yield from honoured(chat(setting, "chat without stop, again", messages=messages))
        if base.text != again.text:
            raise Judged("CANNOT TELL", "unsteady", UNSTEADY)
        stop = stop_of(base.text)
        if stop is None:
            continue
        stops.append(stop)
        wanted = base.text[: base.text.find(stop)]
        for mode, stream in MODES:
            more = {"messages": messages, "stop": [stop]}
            label = f"chat, stop {stop!r}, {mode}"
            request = chat(setting, label, stream=stream, **more)
            answer = yield from honoured(request)
            demand_stopped(answer, mode, stop, wanted, (without, request))
        if has_list or (longer := stops_of(base.text)) is None:
            continue
        has_list = True
        early, late = longer
        wanted = base.text[: base.text.find(early)]
        for mode, stream in MODES:
            more = {"messages": messages, "stop": [late, early]}
            label = f"chat, stop {[late, early]}, {mode}"
            request = chat(setting, label, stream=stream, **more)
            answer = yield from honoured(request)
            demand_stopped(answer, f"{mode}, a list", early, wanted, (without, request))
    if not stops:
        raise Judged("CANNOT TELL", "no stop", "no part of any answer can be used as a stop string")
    return conforms(f"ends before each of {stops}, whole and streamed")


def ask_chat_max_tokens(setting: Setting) -> Asking[RowFinding]:
    """Three lengths in a chat, and one streamed."""
    yield from ordinary(completion(setting, "completion"))
    answers: list[tuple[HTTPRequest, Answer]] = []
    for count in LENGTHS:
        request = chat(setting, f"chat, {plural(count, 'token')}, whole", max_tokens=count)
        longest = yield from honoured(request)
        demand_length(longest, count)
        answers.append((request, longest))
    stream = chat(setting, "chat, 5 tokens, streamed", stream=True, max_tokens=5)
    last = yield from honoured(stream)
    uncounted = demand_counted_length(last, 5)
    for one_of, answer in (*answers, (stream, last)):
        demand_not_ended(one_of.label, answer, longest, (one_of, request))
    return conforms(f"limits of 1, 5 and 12 tokens, and of 5 streamed{uncounted}")


def ask_chat_messages(setting: Setting) -> Asking[RowFinding]:
    """A chat after an earlier message, and after one of the system: each short, then long."""
    yield from ordinary(completion(setting, "completion"))
    asked, other = texts(setting, 2)
    last = {"role": "user", "content": asked}
    alone = yield from honoured(chat(setting, "one message", messages=[last]))
    chats = 0
    counted = 0
    changed = 0
    for role, what in (("user", "an earlier message"), ("system", "a system message")):
        for mode, stream in MODES:
            least = alone
            for size, content in (("short", "Yes."), ("long", f"{other} {other}")):
                label = f"{size} {what}, {mode}"
                first = {"role": role, "content": content}
                reply = [{"role": "assistant", "content": "No."}] if role == "user" else []
                more = {"messages": [first, *reply, last]}
                answer = yield from honoured(chat(setting, label, stream=stream, **more))
                chats += 1
                changed += answer.text != alone.text
                if least.usage is None or answer.usage is None:
                    continue
                if answer.usage.prompt <= least.usage.prompt:
                    less = "without it" if least is alone else "with a short one"
                    counts = f"{answer.usage.prompt} prompt tokens, {least.usage.prompt} {less}"
                    raise Judged("VIOLATES", "dropped", f"{label}: {counts}")
                counted += 1
                least = answer
    if not changed:
        fact = "neither earlier messages nor a system message changed the answer"
        raise all_alike(setting, "dropped", fact)
    tokens = f"prompt tokens grew in {counted} of {chats} chats"
    if not counted:
        tokens = "the server does not count prompt tokens"
    return conforms(f"{tokens}; the text changed in {changed} of {chats}")


def ask_chat_n(setting: Setting) -> Asking[RowFinding]:
    """Two choices in a chat."""
    yield from ordinary(completion(setting, "completion"))
    yield from honoured(chat(setting, "chat, one choice"))
    for mode, stream in MODES:
        more = {"n": 2, "temperature": HOT}
        request = chat(setting, f"chat, n 2, {mode}", stream=stream, **more)
        answer = yield from honoured(request)
        if sorted(answer.choices) != [0, 1]:
            fact = f"{mode}: {plural(len(answer.choices), 'choice')} although 2 were requested"
            raise Judged("VIOLATES", "count", fact)
        if answer.problems:
            raise Judged("VIOLATES", "schema", f"{mode}: {'; '.join(answer.problems)}")
        single = chat(setting, f"chat, sample, {mode}", stream=stream, temperature=HOT)
        yield from demand_unlike(request, single, answer)
    return conforms("2 choices, whole and streamed")


def ask_chat_seed(setting: Setting) -> Asking[RowFinding]:
    """Samples of three seeds in a chat: the first again, and streamed; and that of 0 again."""
    yield from ordinary(completion(setting, "completion"))
    yield from honoured(chat(setting, "chat, temperature 0"))
    found: dict[str, str] = {}
    asked: dict[str, HTTPRequest] = {}
    for label, seed in SEEDED:
        asked[label] = chat(setting, f"chat, {label}", temperature=1, seed=seed)
        found[label] = (yield from honoured(asked[label])).text
    demand_repeated(found, asked)
    request = chat(setting, "chat, seed 1, streamed", stream=True, temperature=1, seed=1)
    stream = yield from honoured(request)
    compared = (asked["seed 1"], request)
    demand_same("streamed", "seed 1", found["seed 1"], stream.text, compared)
    if len(set(found.values())) == 1:
        fact = "3 seeds returned the same text at temperature 1"
        compared = (asked["seed 1"], asked["seed 2"])
        raise all_alike(setting, "ignored", fact, compared)
    demand_distinct(found, asked, setting)
    return conforms(
        f"seeds 1 and 0 repeat, 1 also streamed; 3 seeds returned {len(set(found.values()))} texts"
    )


def ask_temperature(setting: Setting) -> Asking[RowFinding]:
    """Temperature 0 and 1.5 with several seeds: whole, streamed and in a chat."""
    yield from ordinary(completion(setting, "temperature 0"))
    seeded = yield from one(completion(setting, "whether seeds are accepted", seed=1))
    seeds = seeded.is_answer

    def streamed_chat(setting: Setting, label: str, **more: Any) -> HTTPRequest:
        return chat(setting, label, stream=True, **more)

    counts: list[str] = []
    makes: tuple[tuple[str, Making], ...] = (
        ("whole", completion),
        ("streamed", streamed),
        ("in a chat", chat),
        ("in a streamed chat", streamed_chat),
    )
    for mode, make in makes:
        is_chat = mode.endswith("chat")
        cold: list[Answer] = []
        asked: list[HTTPRequest] = []
        for seed in COLD_SEEDS:
            more = {"seed": seed} if seeds else {}
            request = make(setting, f"temperature 0, {mode}", **more)
            asked.append(request)
            cold.append((yield from (one if is_chat else honoured)(request)))
        if is_chat and not all(answer.is_answer and answer.text for answer in cold):
            # Whether the server chats is the promise of another row. A model that thinks first
            # may say nothing in so few tokens.
            continue
        if len({answer.text for answer in cold}) > 1:
            fact = f"{mode}: temperature 0 returned {shown(cold[0].text)}, then a different text"
            raise Judged("VIOLATES", "greedy", fact, asked)
        hot: set[str] = set()
        for seed in range(1, SAMPLES + 1):
            more = {"seed": seed} if seeds else {}
            request = make(setting, f"temperature {HOT}, {mode}", **(more | {"temperature": HOT}))
            hot.add((yield from honoured(request)).text)
        if len(hot) == 1:
            how = " (that of temperature 0)" if cold[0].text in hot else ""
            fact = f"{mode}: {SAMPLES} samples at temperature {HOT} are the same text{how}"
            raise all_alike(setting, "ignored", fact)
        counts.append(f"{mode} {plural(len(hot), 'text')}")
    modes = f"one text in each of {len(counts)} modes"
    return conforms(f"temperature 0: {modes}; {HOT}: {', '.join(counts)}")
