"""A node as control sees it: what it is sent, the questions it is asked, the files of a trial that
come with an answer, and how the node ended.

It is sent our code, the arms and the inputs, each file by its digest and once. What comes back is
bounded, has names of a closed list, and is held against what was asked for.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import threading
import zipfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypedDict

from pydantic import Field, JsonValue

from harness.events import Event, EventError, parse_lines
from harness.forms.digest import sha256
from harness.forms.model import Model
from harness.forms.strict_json import JSON, NotStrict, strict_json
from harness.forms.text import printable
from harness.history import ARTEFACT_FOUND
from harness.record.facts import HOME_INPUT, InputFacts
from harness.run.arms.staging import StagedArm
from harness.run.inputs import ResolvedInput
from harness.run.plan import RunPlan
from harness.stats.outcome import EVENTS
from harness.world.control.capture import HEAD, STACK_LIMIT, TAIL, Capture
from harness.world.control.names import ROOT
from harness.world.machines import store
from harness.world.machines.agent import HEAD as FRAME_HEAD
from harness.world.machines.agent import MOST_JSON, frame
from harness.world.starters.ray_relay import WAIT, ActorGone, Bytes, NodeLost

PIECE = 16 * 2**20


class ArmCargo(Model):
    """An arm's code: path to sha256, those of its files that may be executed, and the arguments of
    its entry.
    """

    files: dict[str, str]
    executable: list[str]
    arguments: dict[str, JsonValue]


class Manifest(Model):
    """All that trials are made of.

    Attributes:
        scenario: the scenario's file.
        overrides: given beside it.
        arms: by name.
        inputs: as the record names them, by name.
        single: those inputs that are one file, not a folder.
        recipes: per arm, the digest of what its trials are made of.
        declared: per arm, the distributions that its repository declares.
        cells: ids of those that are to run.
        number: of the node.
        lanes: worlds at the same time.
    """

    scenario: str
    overrides: list[str]
    arms: dict[str, ArmCargo]
    inputs: dict[str, InputFacts]
    single: list[str]
    recipes: dict[str, str]
    declared: dict[str, list[str]] = Field(default_factory=dict)
    cells: list[str]
    number: int
    lanes: int


def own_code() -> bytes:
    """Return the package `harness` as a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        # Links are followed: in a checkout harness/_integrity is one.
        for name, path in sorted(store.files_of(Path(ROOT, "harness")).items()):
            archive.write(path, f"harness/{name}")
    return buffer.getvalue()


def arm_cargo(staged: StagedArm, files: Mapping[str, str]) -> ArmCargo:
    """Return an arm as it is sent."""
    executable = [name for name in sorted(files) if os.access(staged.folder / name, os.X_OK)]
    return ArmCargo(files=dict(files), executable=executable, arguments=dict(staged.arguments))


def manifest_of(plan: RunPlan, number: int, lanes: int) -> Manifest:
    """Return the manifest of the node of this number, with as many lanes."""
    inputs = plan.preparation.inputs
    return Manifest(
        scenario=plan.loaded.text.decode(),
        overrides=list(plan.overrides),
        arms={
            name: arm_cargo(staged, plan.files(name))
            for name, staged in plan.preparation.arms.items()
        },
        inputs={name: resolved.facts for name, resolved in inputs.items()},
        single=[
            name
            for name, resolved in inputs.items()
            if name != HOME_INPUT and resolved.path.is_file()
        ],
        recipes=dict(plan.trials.recipes),
        declared={name: sorted(names) for name, names in plan.trials.declared.items()},
        cells=[cell.id for cell in plan.runnable],
        number=number,
        lanes=lanes,
    )


def sources(
    arms: Mapping[str, tuple[StagedArm, Mapping[str, str]]], inputs: Mapping[str, ResolvedInput]
) -> dict[str, Path]:
    """Where each file lies here, by its digest."""
    by_digest = {
        digest: staged.folder / name
        for staged, files in arms.values()
        for name, digest in files.items()
    }
    for resolved in inputs.values():
        single = resolved.path.is_file()
        by_digest |= {
            digest: resolved.path if single else resolved.path / name
            for name, digest in resolved.facts.files.items()
        }
    return by_digest


def digests(manifest: Manifest) -> set[str]:
    """Return the sha256 of every file that a manifest names."""
    listed = [
        *(arm.files for arm in manifest.arms.values()),
        *(given.files for given in manifest.inputs.values()),
    ]
    return {digest for files in listed for digest in files.values()}


MOST = 64 * 2**20
# What shortening may add to names of files, and the line that says what is missing.
SPARE = 2
NAME = re.compile(r"rank-(0|[1-9][0-9]{0,5})\.(log|stacks\.txt)")
LIST = re.compile(r"loaded/([0-9a-f]{64})")
MOST_LISTS = 64


class AnswerRefused(Exception):
    """A node sent what it was not asked for; the message says what."""


def pack(capture: Capture, *, known: Collection[str]) -> tuple[list[list[JSON]], bytes]:
    """Return what a world left, as names with sizes, and the content of all of them.

    Args:
        capture: what it left.
        known: the lists of loaded files that control had from this node when it asked.
    """
    files = {EVENTS: "".join(event.line() + "\n" for event in capture.events).encode("ascii")}
    files |= {f"rank-{rank}.log": text for rank, text in sorted(capture.logs.items())}
    files |= {f"rank-{rank}.stacks.txt": text for rank, text in sorted(capture.stacks.items())}
    files |= {
        f"loaded/{digest}": text
        for digest, text in sorted(capture.loaded.items())
        if digest not in known
    }
    return [[name, len(content)] for name, content in files.items()], b"".join(files.values())


def take(
    listing: Any, content: bytes, *, about: Mapping[str, JSON], size: int, known: dict[str, bytes]
) -> Capture:
    """Return what a world left, from what a node sent.

    Args:
        listing: names with sizes.
        content: of all of them, one after the other.
        about: what the first line of the trial has to say.
        size: world size.
        known: the lists of loaded files that came before, by sha256; new ones are added.

    Raises:
        AnswerRefused: it is not the answer to what was asked.
    """
    files = _cut(listing, content)
    events = files.pop(EVENTS, None)
    if events is None:
        raise AnswerRefused(f"its response has no {EVENTS}")
    ranks: dict[str, dict[int, bytes]] = {"log": {}, "stacks.txt": {}}
    bounds = {"log": SPARE * (HEAD + TAIL), "stacks.txt": SPARE * STACK_LIMIT}
    for name, text in files.items():
        if match := LIST.fullmatch(name):
            if sha256(text) != match[1]:
                raise AnswerRefused("a list of loaded files does not match its digest")
            if len(known) >= MOST_LISTS * size:
                raise AnswerRefused(
                    "it sent more distinct lists of loaded files than its trials can produce"
                )
            if sum(map(len, known.values())) + len(text) > MOST:
                raise AnswerRefused(
                    f"its ranks' lists of loaded files total more than {MOST} bytes"
                )
            known[match[1]] = text
            continue
        match = NAME.fullmatch(name)
        if match is None or int(match[1]) >= size:
            raise AnswerRefused(f"it sent a file that no trial writes: {printable(name, limit=60)}")
        if len(text) > bounds[match[2]]:
            raise AnswerRefused(
                f"its {name} has {len(text)} bytes, but at most {bounds[match[2]]} are accepted"
            )
        ranks[match[2]][int(match[1])] = text
    try:
        said = parse_lines(events)
    except EventError as error:
        raise AnswerRefused(f"its events cannot be read: {error}") from None
    _demand_asked(said, about)
    lists = {
        str(event.values.get("packages"))
        for event in said
        if (event.by, event.name) == ("rank", "subject.loaded")
    }
    loaded = {digest: known[digest] for digest in lists if digest in known}
    if lacking := sorted(lists - loaded.keys() - {"None"}):
        raise AnswerRefused(
            "it did not send the list of the files that its ranks loaded:"
            f" {printable(lacking[0], limit=64)}"
        )
    return Capture(events=tuple(said), logs=ranks["log"], stacks=ranks["stacks.txt"], loaded=loaded)


def _cut(listing: Any, content: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    at = 0
    for entry in listing if isinstance(listing, list) else ():
        if (
            not isinstance(entry, list)
            or [type(part) for part in entry] != [str, int]
            or entry[1] < 0
        ):
            raise AnswerRefused("its list of files is malformed")
        name, length = entry
        if name in files:
            raise AnswerRefused(f"it sent {printable(name, limit=60)} twice")
        files[name] = content[at : at + length]
        at += length
    if at != len(content):
        raise AnswerRefused(f"it sent {len(content)} bytes, but its list of files adds up to {at}")
    return files


def _demand_asked(said: list[Event], about: Mapping[str, JSON]) -> None:
    """Demand that the events are those of the trial that was asked for, from its begin to its
    end.
    """
    if not said or (said[0].by, said[0].name) != ("harness", "world.begin"):
        raise AnswerRefused("its events do not begin with world.begin")
    if (said[-1].by, said[-1].name) != ("harness", "world.end"):
        raise AnswerRefused("its events do not end with world.end")
    for key, wanted in about.items():
        if (value := said[0].values.get(key)) != wanted:
            what = f"its {key} is {printable(str(value), limit=60)}, not {wanted}"
            raise AnswerRefused(f"it did not send the requested trial: {what}")
    if any(event.name == ARTEFACT_FOUND and event.values.get("stored") is True for event in said):
        raise AnswerRefused(
            "its ranks keep artefacts (context.keep), which are not fetched from nodes; run the"
            " scenario on this machine"
        )


Answer = tuple[dict[str, Any], bytes]
"""What a node answers: the message of our process there, and the bytes that come with it."""


class NodeQuestion(TypedDict, total=False):
    """What control asks of a node.

    Attributes:
        ask: what: `facts`, `lacks`, `piece`, `prepare`, `trial`, `end`; `nothing` is a heartbeat.
        order: number of the question, which its answer bears too.
        digests: of `lacks`: files that the node may have.
        digest, first, last: of `piece`: whose piece it is, and whether it begins or ends the file.
        manifest: of `prepare`: a `Manifest`.
        cell, arm, index: of `trial`: which one.
        hang: of `trial`: what is to be proved of it, as `Hang`; None for nothing.
        known: of `trial`: the lists of loaded files that control has of this node.
    """

    ask: str
    order: int
    digests: list[str]
    digest: str
    first: bool
    last: bool
    manifest: JSON
    cell: str
    arm: str
    index: int
    hang: dict[str, Any] | None
    known: list[str]


BEAT = frame({"ask": "nothing"})


class Node:
    """One node. Safe to use from several threads.

    Attributes:
        number: in the record.
        name: of its host.
        ended: why it is not used any more; None while it is.
    """

    def __init__(self, relay: Bytes, *, number: int, name: str) -> None:
        """Begin to listen."""
        self.number = number
        self.name = name
        self.ended: Exception | None = None
        self._relay = relay
        self._orders = itertools.count(1)
        self._pending: dict[int, Future[Answer]] = {}
        # Between who asks and the thread that listens: no question is added once the node has
        # ended, as nobody would answer it.
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._thread = threading.Thread(target=self._listen, name=f"node-{number}", daemon=True)
        self._thread.start()

    def ask(self, what: str, content: bytes = b"", **more: Any) -> Future[Answer]:
        """Ask one thing. The future raises NodeLost, ActorGone or AnswerRefused where no answer
        comes any more.
        """
        future: Future[Answer] = Future()
        with self._lock:
            if self.ended is not None:
                future.set_exception(self.ended)
                return future
            order = next(self._orders)
            self._pending[order] = future
        self._relay.write(frame({"ask": what, "order": order, **more}, content))
        return future

    def await_end(self, within: float) -> bool:
        """Wait until the process there has ended; whether it has."""
        self._thread.join(within)
        return not self._thread.is_alive()

    def kill(self) -> None:
        """End the relay, and with it the process: it hears that its channel is closed."""
        self._end(ActorGone("the run ended it"))
        self._relay.kill()

    def _listen(self) -> None:
        try:
            while self.ended is None:
                part = self._relay.read(WAIT)
                if part is None:
                    self._end(
                        ActorGone(
                            "the Rankproof process on that node ended, although the node is still"
                            f" up{self._last_words()}"
                        )
                    )
                    return
                self._buffer += part
                for message, content in self._messages():
                    self._take(message, content)
        except (NodeLost, ActorGone, AnswerRefused) as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it
            self._end(ActorGone(f"{type(error).__name__}: {printable(str(error), limit=200)}"))

    def _last_words(self) -> str:
        said = self._relay.said().strip().rpartition("\n")[2]
        return f"; its last output: {printable(said, limit=200)}" if said else ""

    def _messages(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        while len(self._buffer) >= FRAME_HEAD.size:
            words, size = FRAME_HEAD.unpack_from(self._buffer)
            if words > MOST_JSON or size > MOST:
                raise AnswerRefused(
                    f"it announced a message of {words + size} bytes, but at most"
                    f" {MOST_JSON + MOST} are accepted"
                )
            end = FRAME_HEAD.size + words + size
            if len(self._buffer) < end:
                return
            text = bytes(self._buffer[FRAME_HEAD.size : FRAME_HEAD.size + words])
            content = bytes(self._buffer[end - size : end])
            del self._buffer[:end]
            try:
                message = strict_json(text)
            except NotStrict as error:
                raise AnswerRefused(f"it did not answer in JSON: {error}") from None
            if not isinstance(message, dict):
                raise AnswerRefused("its response is not a JSON object")
            yield message, content

    def _take(self, message: dict[str, Any], content: bytes) -> None:
        order = message.get("order")
        with self._lock:
            future = self._pending.pop(order, None) if type(order) is int else None
        if future is None:
            raise AnswerRefused(
                "it answered a request that was not made, or answered a request twice"
            )
        future.set_result((message, content))

    def _end(self, why: Exception) -> None:
        with self._lock:
            if self.ended is None:
                self.ended = why
            left = list(self._pending.values())
            self._pending.clear()
        for future in left:
            future.set_exception(why)
