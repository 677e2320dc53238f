"""Limits of what one trial shows, read from its events and its logs.

Of logits that it compared: how small a defect, which prompts, whose word it rests on. An honest
slip passes where nobody looks at what was compared: prompts that are one prompt, a single position
of each, noise that was measured of another thing, a model that is hardly split. Of its ranks:
whether they exchanged anything, what they reported, and a traceback that one printed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from harness.checks.agree import AgreeCheck, is_nothing
from harness.checks.equal import EqualCheck
from harness.checks.equivalent import EquivalentCheck, parity_of, smallest_seen
from harness.checks.finding import canonical
from harness.checks.influence import InfluenceCheck
from harness.checks.ledgers import LedgerAgreesCheck, TransfersIntactCheck
from harness.checks.requests import RequestsCheck
from harness.checks.shards_cover import ShardsCoverCheck, plan_of, shards_of
from harness.forms.digest import sha256
from harness.forms.strict_json import JSON
from harness.forms.text import joined, numbered, plural
from harness.history import ARTEFACT_FOUND, CODED_END, LEDGERS_COMPARED, History
from harness.numeric.parity import NAME, PHASES
from harness.scenario import Scenario
from harness.scenario.lint.sufficiency import wide
from harness.stats.ends import listed
from harness.stats.provenance import loaded_files
from harness.subjects import READY

BOUNDARY = "prefill.boundary"
"""The event by which a rank tells that a chunk of a prompt follows another one."""
FILES_NAMED = 3
HALF = {"BF16": "bfloat16", "F16": "float16"}
"""The dtypes of a checkpoint that round more than float32 does."""
MOSTLY = 0.5
"""The share of a checkpoint that lies on several ranks from which it is told."""

# What the runtime and the harness say of every rank; the rest is what the subject reports.
OF_EVERY_RANK = ("rank.", "backend.", "subject.", "fault.", "group.")
TRACEBACKS = (b"Traceback (most recent call last):", b"Fatal Python error: ")
LINES_MOST = 20
LINES_READ = 1000
LINE_LIMIT = 300


def unseen(
    scenario: Scenario, history: History, *, axes: Mapping[str, object] | None = None
) -> list[str]:
    """Return what a trial of the candidate that passed leaves open, one sentence each.

    Of each cell one trial is looked at.

    Args:
        scenario: whose checks compared.
        history: of the trial, with its reference's.
        axes: further axes of its cell.
    """
    if history.reference is None or scenario.subject.compare is not None:
        return []
    parity = [check for check in scenario.checks if isinstance(check, EquivalentCheck)]
    sentences = [sentence for check in parity for sentence in (_size(check, history), wide(check))]
    if parity:
        sentences += [
            _extent(scenario, history, axes) if axes is not None else "",
            *_prompts(history),
            _chunks(history),
            _wider(history),
        ]
    sentences += [_replicated(check, history) for check in scenario.checks]
    sentences += [_own_word(scenario), _same_code(history)]
    return [sentence for sentence in sentences if sentence]


def left_out(scenario: Scenario) -> str:
    """Which combinations `matrix.exclude` leaves out; empty where there are none."""
    rules = [
        ", ".join(f"{axis}={value}" for axis, value in rule.items())
        for rule in scenario.matrix.exclude
    ]
    return (
        f"combinations that matrix.exclude leaves out were not tested: {'; '.join(rules)}"
        if rules
        else ""
    )


def swapped(scenario: Scenario) -> str:
    """Return what ledgers and digests do not see: arrays for another purpose; empty where no check
    asks for them.
    """
    asked = [
        check.id
        for check in scenario.checks
        if isinstance(check, LedgerAgreesCheck | TransfersIntactCheck)
    ]
    if not asked:
        return ""
    checks = "check" if len(asked) == 1 else "checks"
    return (
        f"{checks} {joined(asked)} cannot detect that the subject swapped two receives of the same"
        " shape and type without tags, because every call still has a matching call and every byte"
        " arrives as it was sent. For coded payloads, collective-correct checks the sender"
    )


def lazy(scenario: Scenario) -> str:
    """Return what digests that are made call by call do not show; empty where none are."""
    if scenario.digests != "eager":
        return ""
    return (
        "MLX calls were evaluated one by one for their digests, so lazy evaluation was not tested"
    )


def _size(check: EquivalentCheck, history: History) -> str:
    """How small a defect was shown to be seen."""
    assert history.reference is not None
    parity = parity_of(check, history)
    if parity is None or not parity.sensitivity:
        return (
            "the reference tried no defect of known size, so this run does not show how small a"
            f" defect check {check.id} detects, or that its limit allows only noise"
        )
    if not (smallest := smallest_seen(history.reference, parity)):
        return (
            f"check {check.id} would have detected none of the defects of known size that the"
            " reference tried"
        )
    # What is off at every position shows in the middle distance too, what is off at one in the
    # largest alone.
    return (
        f"the smallest defect that check {check.id} is known to detect has {smallest}. A defect at"
        " few positions may be larger and still go undetected"
    )


def _prompts(history: History) -> Iterator[str]:
    """Prompts that are one, and phases and positions that are not there."""
    assert history.reference is not None
    digests: defaultdict[str, list[int]] = defaultdict(list)
    rows = list[object]()
    phases = set[str]()
    for seen in history.reference.noted(ARTEFACT_FOUND, 0):
        values = seen.event.values
        match = NAME.fullmatch(str(values.get("artefact")))
        if match is None or match["what"] != "logits" or match["series"]:
            continue
        phases.add(match["phase"])
        if match["phase"] == PHASES[0]:
            digests[str(values.get("sha256"))].append(int(match["prompt"]))
            shape = values.get("shape")
            rows.append(shape[0] if isinstance(shape, list) and shape else None)
    for alike in digests.values():
        if len(alike) > 1:
            yield (
                f"{numbered('prompt', sorted(alike))} have bit-identical logits, so they count as"
                " one prompt"
            )
    if rows and all(many == 1 for many in rows):
        yield "only one position of each prompt was compared"
    for phase in PHASES:
        if phase not in phases:
            yield f"no {phase} logits were compared"


def _extent(scenario: Scenario, history: History, axes: Mapping[str, object]) -> str:
    """How far into prompts and answers logits were compared, in what batches and by which
    sampling.
    """
    assert history.reference is not None
    rows: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for seen in history.reference.noted(ARTEFACT_FOUND, 0):
        match = NAME.fullmatch(str(seen.event.values.get("artefact")))
        shape = seen.event.values.get("shape")
        if match is None or match["what"] != "logits" or match["series"]:
            continue
        if isinstance(shape, list) and len(shape) == 2 and isinstance(shape[0], int):
            rows[match["phase"]][int(match["prompt"])] = shape[0]
    read = rows[PHASES[0]]
    steps = rows[PHASES[1]]
    places = []
    if read and max(read.values()):
        places.append(f"positions 0 to {max(read.values()) - 1} of {plural(len(read), 'prompt')}")
    if steps and max(steps.values()):
        places.append(f"{plural(max(steps.values()), 'decode step')}")
    if not places:
        return ""
    return f"logits were compared at {' and '.join(places)}{_how_asked(scenario, axes)}"


def _how_asked(scenario: Scenario, axes: Mapping[str, object]) -> str:
    """In what batches and by which sampling, and that this is all.

    Only a ready subject is known to ask one by one.
    """
    names = {scenario.subject.use, scenario.subject.beside} & READY.ours.keys()
    if not any("sampling" in READY.ours[name].arguments for name in names if name is not None):
        return " only. It is unknown how requests were batched and sampled"
    stated = scenario.subject.arms["candidate"].with_.get("sampling", "greedy")
    sampling = axes.get("sampling", stated)
    return f" only, at batch size 1 with {sampling} sampling"


def _chunks(history: History) -> str:
    """That no rank read a prompt in more than one chunk, as far as it told."""
    if any(history.said(rank, BOUNDARY) for rank in range(history.size)):
        return ""
    return (
        f"no rank reported a boundary between two chunks of a prompt ({BOUNDARY}), so this run does"
        " not show that any prompt was longer than a chunk"
    )


def _wider(history: History) -> str:
    """That ranks computed in float32 what is kept, and so most likely served, in a dtype of half
    the width.
    """
    for rank in range(history.size):
        dtypes = [seen.event.values.get("dtypes") for seen in history.said(rank, "shards")]
        kept = {HALF.get(str(one)) for some in dtypes if isinstance(some, list) for one in some} - {
            None
        }
        if kept and any(
            seen.event.values.get("dtype") == "float32"
            for seen in history.said(rank, "engine.ready")
        ):
            named = " and ".join(sorted(map(str, kept)))
            return (
                f"the checkpoint is stored in {named} and was computed in float32, so rounding in"
                f" {named} would not show up here"
            )
    return ""


def _replicated(check: object, history: History) -> str:
    """That most of a checkpoint lies on several ranks, as a check allows."""
    if not isinstance(check, ShardsCoverCheck):
        return ""
    held: defaultdict[tuple[str, object], set[int]] = defaultdict(set)
    for rank in range(history.size):
        for shard in shards_of(history, rank) or ():
            held[shard.tensor, shard.bounds].add(rank)
    sizes = {
        place: math.prod(end - begin for begin, end in place[1])  # type: ignore[attr-defined]
        for place in held
    }
    total = sum(sizes.values())
    shared = sum(size for place, size in sizes.items() if len(held[place]) > 1)
    if not total or shared / total < MOSTLY:
        return ""
    # Of a trial that passed: what is no plan would have failed.
    plan = plan_of(history) if check.plan is not None else None
    by = (
        f"the plan of {plan.engine} states (check {check.id})"
        if plan
        else f"replicated of check {check.id} allows"
    )
    return f"{shared / total:.0%} of the checkpoint is on several ranks, as {by}"


def _own_word(scenario: Scenario) -> str:
    """Return what ranks say of themselves, and nothing else shows."""
    said = {
        InfluenceCheck: "the shard that it changed",
        ShardsCoverCheck: "the bytes that it used",
    }
    asked = [(check.id, said[type(check)]) for check in scenario.checks if type(check) in said]
    if not asked:
        return ""
    checks = ("check " if len(asked) == 1 else "checks ") + ", ".join(name for name, _ in asked)
    return (
        "we rely on each rank's own report of"
        f" {' and '.join(dict.fromkeys(what for _, what in asked))} ({checks})"
    )


def _same_code(history: History) -> str:
    """Files that the reference ran too: what is wrong in them is wrong on both sides."""
    assert history.reference is not None
    sides = [
        {file for rank in range(side.size) for file in loaded_files(side, rank)}
        for side in (history.reference, history)
    ]
    both = sorted({name for name, _ in sides[0] & sides[1]})
    if not both:
        return ""
    more = f" and {plural(len(both) - FILES_NAMED, 'more file')}" if len(both) > FILES_NAMED else ""
    named = ", ".join(both[:FILES_NAMED])
    return f"the reference and the ranks share {named}{more}, so a bug there would not show up here"


def last_asked(scenario: Scenario, history: History) -> int | None:
    """Return when the last event of a trial came that a check of its scenario looks at; None where
    no check looks at one.
    """
    times: list[int] = []
    for check in scenario.checks:
        event = getattr(check, "event", None)
        for rank in check.ranks.of(history.size) if hasattr(check, "ranks") else ():
            if event is not None:
                times += [seen.event.ns for seen in history.said(rank, event)]
            elif isinstance(check, RequestsCheck):
                times += [seen.event.ns for seen in history.noted("hub.request", rank)]
    return max(times, default=None)


def has_called(history: History) -> bool:
    """Return whether ledgers hold calls of ranks that no check held against another rank's: made
    together, or each alone.
    """
    noted = history.noted(LEDGERS_COMPARED)
    ranks = [ledger for seen in noted for ledger in _mappings(seen.event.values.get("ranks"))]
    are_held = any(_held(seen.event.values.get("checks")) for seen in noted)
    return not are_held and any(
        isinstance(many := ledger.get("calls"), int) and many > 0 for ledger in ranks
    )


def has_talked(history: History) -> bool:
    """Return whether an exchange between ranks is shown: calls held against another rank's, or
    payloads that say whose.
    """
    counts = [
        seen.event.values.get("calls")
        for rank in range(history.size)
        for seen in history.said(rank, CODED_END)
    ]
    for seen in history.noted(LEDGERS_COMPARED):
        counts += [many for some in _held(seen.event.values.get("checks")) for many in some]
    return any(isinstance(many, int) and many > 0 for many in counts)


def _held(checks: object) -> list[list[JSON]]:
    """Return how many calls of each rank were held against another rank's, by each check that does
    so.
    """
    counts = [check.get(key) for check in _mappings(checks) for key in ("matched", "compared")]
    return [ranks for ranks in counts if isinstance(ranks, list)]


def says_nothing(check: object, history: History, rank: int) -> bool:
    """Return whether all that a rank reported of what a check looks at is null or empty, where that
    is not asked for.
    """
    if not isinstance(check, AgreeCheck | EqualCheck) or check.empty is not None:
        return False
    values = [value for value, _ in history.values(rank, check.event, check.key)]
    return bool(values) and all(is_nothing(value) for value in values)


def _mappings(values: object) -> list[dict[str, JSON]]:
    if isinstance(values, dict):
        values = list(values.values())
    return [value for value in listed(values) if isinstance(value, dict)]


def texts(values: object) -> Iterable[str]:
    """Return the texts among some values of an event; nothing where they are no list."""
    return [name for name in values if isinstance(name, str)] if isinstance(values, list) else []


def reported(history: History) -> str:
    """One digest of what the subject reported on every rank, each in its order."""
    reports: list[list[object]] = [[] for _ in range(history.size)]
    for seen in history.seen:
        event = seen.event
        if (
            event.by == "rank"
            and event.rank is not None
            and not event.name.startswith(OF_EVERY_RANK)
        ):
            reports[event.rank].append([event.name, dict(event.values)])
    return sha256(canonical(reports).encode())


def traceback_of(log: bytes) -> tuple[int, str] | None:
    """Return the first traceback of a log: its line, from 1, and its text; None where there is
    none.
    """
    places = [(place, mark) for mark in TRACEBACKS if (place := log.find(mark)) >= 0]
    if not places:
        return None
    place, mark = min(places)
    begin = log.rfind(b"\n", 0, place) + 1
    before = log.rfind(b"\n", 0, max(0, begin - 1)) + 1
    if begin and log.startswith(b"Exception ", before):
        begin = before  # "Exception in thread Thread-1 (work):"
    number = log.count(b"\n", 0, begin) + 1
    lines = log[begin:].decode("utf-8", "backslashreplace").splitlines()[:LINES_READ]
    head = next(index for index, line in enumerate(lines) if mark.decode() in line)
    # What a library writes before each of its lines, `[rank1]: ` for one, hides which are indented.
    prefix = lines[head].partition(mark.decode())[0]
    inner = [line.removeprefix(prefix) for line in lines[head + 1 :]]
    end = next(
        (index for index, line in enumerate(inner) if line and not line[0].isspace()),
        len(inner) - 1,
    )
    kept = lines[: head + 2 + end] if mark == TRACEBACKS[0] else lines[:LINES_MOST]
    if len(kept) > LINES_MOST:
        half = LINES_MOST // 2
        kept = [*kept[:half], f"... ({len(kept) - LINES_MOST} more lines)", *kept[-half:]]
    return number, "\n".join(line[:LINE_LIMIT] for line in kept).rstrip()
