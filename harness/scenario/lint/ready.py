"""Rules for a ready-made subject (`subject.use`): it is there, and is asked for what it takes and
tells.

Of a subject of one's own nobody knows what it emits; of these it is known, so a slip is named
before a run.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.backends import KINDS as BACKENDS
from harness.forms.problem import Path, Problem, closest
from harness.forms.text import listed
from harness.plugins import PluginFailed
from harness.scenario.lint.draft import ScenarioDraft
from harness.scenario.matrix import OF_THE_WORLD
from harness.subjects import READY, ReadySubject

# What says which code an arm runs: a ready-made subject's is Rankproof's own, and the same in both.
OF_CODE = ("file", "repo", "rev", "patch")
# Events that the harness and the runtime tell of every rank; which of them can be asked for, other
# rules say.
OF_EVERY_RANK = ("rank.", "backend.", "subject.", "world.", "fault.", "hub.", "gate.", "channel.")


def ready(draft: ScenarioDraft) -> Iterator[Problem]:
    """Everything that is wrong about a ready-made subject, and about one whose code lies beside the
    scenario's own.
    """
    for key in ("use", "beside"):
        name = draft.at("subject", key)
        if isinstance(name, str) and name not in READY:
            message = (
                READY.reason(name)
                or f"is not a ready-made subject; known: {', '.join(READY.names)}"
            )
            yield draft.problem(("subject", key), message, suggestion=closest(name, READY.names))
    name = draft.at("subject", "use")
    if not isinstance(name, str) or (subject := READY.get(name)) is None:
        return
    yield from _no_own_code(draft)
    yield from _arguments(draft, subject)
    yield from _together(draft, subject)
    yield from _asked_alike(draft, subject)
    yield from _inputs(draft, subject)
    yield from _backends(draft, name, subject)
    yield from _events(draft, name, subject)


def is_of_the_ranks(draft: ScenarioDraft, axis: str) -> bool:
    """Return whether an axis says how the ranks go about it, which their reference need not be
    given.
    """
    subject = READY.get(str(draft.at("subject", "use")))
    return (
        subject is not None and axis in subject.arguments and subject.arguments[axis].of_the_ranks
    )


def _no_own_code(draft: ScenarioDraft) -> Iterator[Problem]:
    places: list[Path] = [("subject", "path")] if draft.has("subject", "path") else []
    places += [
        (*arm, key) for arm in draft.arms().values() for key in OF_CODE if draft.has(*arm, key)
    ]
    for place in places:
        message = (
            "is only for your own code, because both arms of a ready-made subject run the same"
            " code. Make the arms differ in with or environment"
        )
        yield draft.problem(place, message, at_key=True)


def _arguments(draft: ScenarioDraft, subject: ReadySubject) -> Iterator[Problem]:
    """Arguments that it does not take, and values that they cannot have: of the arms, and of the
    matrix.
    """
    known = list(subject.arguments)
    axes = [axis for axis in draft.axes() if axis not in OF_THE_WORLD]
    places: list[tuple[Path, list[Path]]] = [
        (path, [path]) for arm in _stated(draft) for path in _each(draft, *arm, "with")
    ]
    places += [
        (("matrix", axis), [("matrix", axis, number) for number in range(len(draft.axes()[axis]))])
        for axis in axes
    ]
    for place, values in places:
        name = str(place[-1])
        argument = subject.arguments.get(name)
        if argument is None:
            message = (
                subject.lacks.get(name)
                or f"is not an argument of this ready-made subject; it takes {', '.join(known)}"
            )
            yield draft.problem(place, message, at_key=True, suggestion=closest(name, known))
            continue
        for path in values:
            value = draft.at(*path)
            if complaint := argument.complaint(value):
                yield draft.problem(path, complaint, suggestion=closest(value, argument.choices))
            elif argument.names_an_input and value not in (inputs := draft.names("inputs")):
                yield draft.problem(
                    path, "is not an input of this scenario", suggestion=closest(value, inputs)
                )


def _together(draft: ScenarioDraft, subject: ReadySubject) -> Iterator[Problem]:
    """Arguments that are right one by one, and with which the subject would refuse to start in some
    cell.
    """
    defaults = {name: argument.default for name, argument in subject.arguments.items()}
    reported: set[Path] = set()
    for arm in _stated(draft):
        if draft.matrix is None:
            continue
        given = {name: draft.at(*arm, "with", name) for name in draft.names(*arm, "with")}
        for cell in draft.matrix.combinations():
            arguments: dict[str, object] = {**defaults, **given, **cell}
            if any(
                argument.complaint(arguments[name]) for name, argument in subject.arguments.items()
            ):
                continue  # said where it stands
            try:
                with READY.guarded(str(draft.at("subject", "use"))):
                    name, why = subject.misfit(arguments, int(cell["ranks"])) or ("", "")
            except PluginFailed as error:
                yield draft.problem(("subject", "use"), f"failed: {error}")
                return
            path: Path = (*arm, "with", name)
            if name not in given:
                path = ("matrix", name if name in draft.axes() else "ranks")
            if name and path not in reported:
                reported.add(path)
                yield draft.problem(path, why if path[-1] == name else f"{name} {why}", at_key=True)


def _asked_alike(draft: ScenarioDraft, subject: ReadySubject) -> Iterator[Problem]:
    """Find an arm that is asked something else than its reference: a control would fail,
    whatever is broken in it.
    """
    at: Path = ("subject", "reference")
    *arms, last = _stated(draft)
    if last != at:
        return
    defaults = {name: argument.default for name, argument in subject.arguments.items()}
    expected = {
        **defaults,
        **{name: draft.at(*at, "with", name) for name in draft.names(*at, "with")},
    }
    for arm in arms:
        given = {name: draft.at(*arm, "with", name) for name in draft.names(*arm, "with")}
        asked = {**defaults, **given}
        if any(argument.complaint(asked[name]) for name, argument in subject.arguments.items()):
            continue  # said where it stands
        for name in subject.question(asked):
            if name in draft.axes() or _plain(asked[name]) == _plain(expected[name]):
                continue
            where = f"with.{name}" if name in given else f"with, which does not set {name}"
            message = (
                f"has a different value in the reference ({where}), so this arm fails even with"
                " correct code; set both to the same value"
            )
            yield draft.problem(
                (*arm, "with", name) if name in given else arm, message, at_key=True
            )


def _plain(value: object) -> object:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _stated(draft: ScenarioDraft) -> list[Path]:
    """Where the arms are stated that there are: a candidate of which nothing is said is one too.

    And the reference, where it is the subject's own: it takes the same arguments.
    """
    places = [
        place for name, place in draft.arms().items() if name != "control" or draft.has(*place)
    ]
    at: Path = ("subject", "reference")
    if isinstance(draft.at(*at), dict) and not draft.has(*at, "entry"):
        places.append(at)
    return places


def _each(draft: ScenarioDraft, *mapping: str | int) -> list[Path]:
    return [(*mapping, name) for name in draft.names(*mapping)]


def _inputs(draft: ScenarioDraft, subject: ReadySubject) -> Iterator[Problem]:
    """Find an input that an arm reads because no argument names another one."""
    arms = _stated(draft)
    for name, argument in subject.arguments.items():
        if (
            argument.names_an_input
            and name not in draft.axes()
            and argument.default not in draft.names("inputs")
        ):
            for arm in arms:
                if not draft.has(*arm, "with", name):
                    missing = f"does not set {argument.default}, which the {arm[-1]} reads"
                    message = f"{missing}; add it, or set with.{name} to another input"
                    yield draft.problem(("inputs",), message)
                    break


def _backends(draft: ScenarioDraft, name: str, subject: ReadySubject) -> Iterator[Problem]:
    for index, backend in enumerate(draft.axes().get("backend", [])):
        if backend in BACKENDS and backend not in subject.backends:
            message = (
                f"is not a backend that {name} supports; it supports {listed(subject.backends)}"
            )
            yield draft.problem(("matrix", "backend", index), message)


def _events(draft: ScenarioDraft, name: str, subject: ReadySubject) -> Iterator[Problem]:
    events = list(subject.emits)
    asked: list[tuple[Path, str]] = []
    for index, check in draft.checks.items():
        for key, attribute in (("event", "event"), ("from", "from_")):
            if draft.has("checks", index, key):
                asked.append((("checks", index, key), getattr(check, attribute)))
        if draft.has("checks", index, "value"):
            yield from _value(draft, ("checks", index, "value"), name, subject)
    shown = draft.at("show")
    for index in range(len(shown) if isinstance(shown, list) else 0):
        yield from _value(draft, ("show", index), name, subject)
    for path in draft.defects():
        if draft.has(*path, "value"):
            yield from _value(draft, (*path, "value"), name, subject)
    asked += [
        (("faults", index, "at"), fault.at)
        for index, fault in draft.faults.items()
        if draft.has("faults", index, "at")
    ]
    for path, event in asked:
        if event not in subject.emits and not event.startswith(OF_EVERY_RANK):
            message = f"is not an event of {name}, which emits {', '.join(events)}"
            yield draft.problem(path, message, suggestion=closest(event, events))
    timed = [event.removesuffix(".begin") for event in events if event.endswith(".begin")]
    for index, row in draft.measure.items():
        if (
            row.event is not None
            and row.event not in timed
            and not row.event.startswith(OF_EVERY_RANK)
        ):
            message = f"has no begin and end events in {name}; these have: {listed(timed)}"
            yield draft.problem(
                ("measure", index, "event"), message, suggestion=closest(row.event, timed)
            )


def _value(draft: ScenarioDraft, path: Path, name: str, subject: ReadySubject) -> Iterator[Problem]:
    given = draft.at(*path)
    event, _, key = str(given).rpartition(".")
    if event.startswith(OF_EVERY_RANK) or key in subject.emits.get(event, ()):
        return
    values = [f"{event}.{key}" for event, keys in subject.emits.items() for key in keys]
    message = f"is not a value that {name} reports; it reports {', '.join(values)}"
    yield draft.problem(path, message, suggestion=closest(given, values))
