"""Rows about what a server keeps from one request for the next: order, cached prefixes, lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from harness.conformance.answer import Answer, read
from harness.conformance.exchange import HTTPRequest
from harness.conformance.rows.differing import (
    TextComparison,
    demand_unchanged,
    judge,
    judged,
    logprobs_if_given,
    steady,
    worst,
)
from harness.conformance.rows.row import (
    LATER,
    Asking,
    Judged,
    RowFinding,
    Setting,
    chat,
    completion,
    conforms,
    honoured,
    one,
    shown,
    unseen,
)
from harness.forms.text import joined

SHORT: Final = 8
"""Tokens of an answer: a close decision is unlikely among so few."""
PREFIXES: Final = (8, 16, 48)
"""Words of the prompts that others begin with."""
EVICTING: Final = 12
"""Other prompts: more than the sequences that small caches keep."""
AT_ONCE: Final = 4
LENGTHS: Final = range(16)
"""Letters added to a prompt: each is a token in most tokenizers, so every place in a block of 16
is met.
"""
BASE_WORDS: Final = 6
BORDERS: Final = (256, 512)
"""Tokens after which servers begin another block, chunk or bucket."""
NEAR: Final = (-1, 0, 1)
LETTERS: Final = 10
FILLED: Final = 0.8
"""Share of a border that words fill; letters fill the rest, one by one."""


def ask_order(setting: Setting) -> Asking[RowFinding]:
    """One prompt before and after others: plain, sampled with a stop string, and in a chat."""
    prompt = unseen(setting, "A", 12)
    more = yield from logprobs_if_given(setting, prompt=prompt)
    before = yield from steady(completion(setting, "A", prompt=prompt, **more))
    other = unseen(setting, "B", 20)
    sampled = {"temperature": 1.5, "stop": ["e"], "max_tokens": 5}
    unanswered: list[str] = []
    for what, request in (
        ("another prompt", completion(setting, "B", prompt=other)),
        ("a sampled one", completion(setting, "B, sampled", prompt=other, **sampled)),
        ("a chat", chat(setting, "B, in a chat")),
    ):
        # Whether the server answers this is the promise of another row.
        if not (yield from one(request)).is_answer:
            unanswered.append(what)
        later = completion(setting, f"{LATER}A", prompt=prompt, **more)
        after = yield from one(later)
        if not after.is_answer:
            raise Judged("CANNOT TELL", "unanswered", f"A after {what}: {after.error}")
        if after.text != before.text and not after.logprobs:
            # What came before it is part of the question, so that is asked again too.
            yield from one(request)
        fact = f"after {what}: {shown(after.text)}, before it {shown(before.text)}"
        yield from demand_unchanged(before, after, later, "order", fact, (later, request, later))
    fact = "the same text before and after another prompt, a sampled one and a chat"
    return conforms(f"{fact} (not answered: {joined(unanswered)})" if unanswered else fact)


def _short(setting: Setting, label: str, prompt: str, more: dict[str, Any]) -> HTTPRequest:
    return completion(setting, label, prompt=prompt, max_tokens=SHORT, **more)


def ask_prefix_cache(setting: Setting) -> Asking[RowFinding]:
    """Prompts alone, after their own beginnings, and after many others."""
    more = yield from logprobs_if_given(setting)
    yield from steady(_short(setting, "alone", unseen(setting, "alone", PREFIXES[0]), more))
    prefixes = [unseen(setting, f"prefix {words}", words) for words in PREFIXES]
    cold: list[Answer] = []
    for prefix in prefixes:
        request = _short(setting, "prefix and ending", f"{prefix} river stone", more)
        cold.append((yield from honoured(request)))
    for prefix in prefixes:
        yield from honoured(_short(setting, "prefix", prefix, more))
        yield from honoured(_short(setting, "other ending", f"{prefix} market", more))
    compared: list[TextComparison] = []
    answered = 0
    for when in ("after its prefix", "after other prompts"):
        for prefix, before in zip(prefixes, cold, strict=True):
            label = f"{LATER}{when}"
            request = _short(setting, label, f"{prefix} river stone", more)
            after = yield from honoured(request)
            compared.append(TextComparison(f"{len(prefix.split())} words, {when}", before, after))
        if when == "after its prefix":
            others = [
                completion(
                    setting,
                    "another",
                    prompt=unseen(setting, f"other {number}", BASE_WORDS),
                    max_tokens=1,
                )
                for number in range(EVICTING)
            ]
            # A few at a time: nothing is compared with their answers.
            for place in range(0, EVICTING, AT_ONCE):
                exchanges = yield others[place : place + AT_ONCE]
                answered += sum(read(exchange).is_answer for exchange in exchanges)
    of = "" if answered == EVICTING else f"{answered} of "
    fact = (
        f"prefixes of {joined(map(str, PREFIXES))} words: the same text cold, after the prefix, and"
        f" after {of}{EVICTING} other prompts"
    )
    return judge(compared, fact)


def ask_lengths(setting: Setting) -> Asking[RowFinding]:
    """Prompts of growing length whose beginning is cached, and again after many others."""
    more = yield from logprobs_if_given(setting)
    yield from steady(_short(setting, "alone", unseen(setting, "alone", BASE_WORDS), more))
    places: list[_Place] = []
    for length in LENGTHS:
        prompt = unseen(setting, f"length {length}", BASE_WORDS) + " a" * length
        # The beginning is computed by itself, so the prompt is cut there, wherever a border is.
        yield from one(completion(setting, "its beginning", prompt=prompt, max_tokens=1))
        answer = yield from honoured(_short(setting, "continued", f"{prompt} river", more))
        places.append(_Place("short", f"{BASE_WORDS} words and {length} letters", prompt, answer))
    reached: list[str] = []
    truncated = ""
    for border in BORDERS:
        found, counts = yield from _around(setting, border, more)
        places += found
        reached += [str(border)] if found else []
        truncated = truncated or counts
    compared: dict[str, list[TextComparison]] = {}
    for place in places:
        request = _short(setting, f"{LATER}whole", f"{place.prompt} river", more)
        after = yield from honoured(request)
        comparison = TextComparison(place.label, place.answer, after)
        compared.setdefault(place.group, []).append(comparison)
    around = f", and around {' and '.join(reached)} tokens" if reached else ""
    fact = f"{len(LENGTHS)} lengths{around}: the same text in two parts and whole"
    # Each group by itself: a server may be wrong at one border alone.
    finding = worst([judged(group, fact) for group in compared.values()])
    if truncated and finding.word != "VIOLATES":
        raise Judged("VIOLATES", "truncated", truncated)
    return finding


@dataclass(frozen=True)
class _Place:
    """A prompt that was asked in two parts, and its answer."""

    group: str
    label: str
    prompt: str
    answer: Answer


def _around(
    setting: Setting, border: int, more: dict[str, Any]
) -> Asking[tuple[list[_Place], str]]:
    """Ask prompts in two parts that meet around a border, and one that ends there.

    Nothing is returned where the server does not count tokens, or takes no prompt of this length.
    The second value is what shows that it takes a part of one.
    """
    places: list[_Place] = []
    # As many tokens as a word, and then as a letter, have in this server's tokenizer.
    words = BASE_WORDS
    ending = 0
    for number, offset in enumerate((*NEAR, None)):
        what = f"border {border}, {number}"
        count = yield from _count(setting, unseen(setting, what, words))
        if not count:
            return [], ""
        words = max(1, int(words * FILLED * border / count))
        begun = unseen(setting, what, words)
        length = yield from _count(setting, begun)
        longer = yield from _count(setting, begun + " a" * LETTERS)
        if not length or not longer:
            return [], ""
        if longer <= length:
            counts = f"{length} tokens, and {longer} with {LETTERS} more letters"
            return [], f"a prompt counts {counts}"
        letter = (longer - length) / LETTERS
        goal = border + (-ending if offset is None else offset)
        prompt = begun + " a" * max(0, round((goal - length) / letter))
        cut = yield from one(_short(setting, "its beginning", prompt, more))
        answer = yield from one(_short(setting, "continued", f"{prompt} river", more))
        if cut.is_refusal or answer.is_refusal or cut.usage is None or answer.usage is None:
            return [], ""
        ending = answer.usage.prompt - cut.usage.prompt
        if ending <= 0:
            counts = f"{cut.usage.prompt} tokens, and {answer.usage.prompt} with another word"
            return [], f"a prompt counts {counts}"
        label = f"cut after {cut.usage.prompt} of {answer.usage.prompt} tokens"
        places.append(_Place(str(border), label, prompt, answer))
    return places, ""


def _count(setting: Setting, prompt: str) -> Asking[int]:
    """Return how many tokens the server counts in a prompt; 0 where it does not say."""
    answer = yield from one(completion(setting, "how many tokens", prompt=prompt, max_tokens=1))
    return answer.usage.prompt if answer.usage is not None else 0
