"""Differences between two arms: their own code, and the libraries that they have in different
releases.

Ranks tell each file that they loaded of such a library, with its sha256. Where the content of a
Python module differs between the arms, both texts are evidence, named by that sha256:
`evidence/library/<sha256>.py`. The difference follows from them, for whoever verifies as for the
run. Up to 256 KiB of a file and 4 MiB of a run are kept, the smallest pairs first; of what is
beyond, the run says its size.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.forms.digest import sha256
from harness.forms.text import bounded
from harness.history import History
from harness.record.arms import compared, installed
from harness.record.facts import SOURCE_FOLDER, RunFacts
from harness.record.model import ArmSummary, LibraryChange, ModuleChange, RecordError
from harness.record.trial_reader import TrialReader
from harness.scenario import CALLED
from harness.stats.provenance import NAMED, loaded_files, path_of, told

FOLDER = "evidence/library"
TEXT_LIMIT = 256 * 1024
"""Bytes of a module whose text is kept."""
BUDGET = 4 * 2**20
"""Bytes that are kept of a run."""
MODULE_LINES = 100
RUN_LINES = 600
LINE_LIMIT = 500
"""Lines of difference that are shown of a module and of a run, and characters of a line."""
LINES_COMPARED = 20_000


@dataclass
class LoadedLibraries:
    """Files that ranks loaded of some distributions.

    Attributes:
        arms: from which one to which the report says what changed.
        digests: distribution to file to arm to every sha256 that its ranks told.
        ranks: the same, to the ranks that told it.
        told: per arm, all ranks that told anything.
        untold: the most files that a list leaves out.
    """

    arms: tuple[str, str]
    digests: dict[str, dict[str, dict[str, set[str]]]] = field(default_factory=dict)
    ranks: dict[tuple[str, str, str], set[int]] = field(default_factory=dict)
    told: dict[str, set[int]] = field(default_factory=dict)
    untold: int = 0

    def add(
        self, arm: str, listing: bytes, *, of: Collection[str], ranks: Collection[int] = ()
    ) -> None:
        """Add a rank's list, of which only the distributions in `of` count."""
        if arm not in self.arms:
            return
        self.told.setdefault(arm, set()).update(ranks)
        files, left_out = told(listing)
        self.untold = max(self.untold, left_out)
        for distribution, file, digest in files:
            if distribution in of:
                by_arm = self.digests.setdefault(distribution, {}).setdefault(file, {})
                by_arm.setdefault(arm, set()).add(digest)
                self.ranks.setdefault((arm, distribution, file), set()).update(ranks)

    def only(self, distribution: str, file: str) -> dict[str, list[int]]:
        """Per arm, the ranks that loaded a file, where some did and others did not."""
        by_arm = {arm: self.ranks.get((arm, distribution, file), set()) for arm in self.arms}
        return {
            arm: sorted(ranks)
            for arm, ranks in by_arm.items()
            if ranks and ranks != self.told.get(arm)
        }

    def pairs(self) -> Iterator[tuple[str, str, str, str]]:
        """Distribution, file, and both digests, of each Python module of which each arm loaded
        another content.
        """
        for distribution, files in sorted(self.digests.items()):
            for file, by_arm in sorted(files.items()):
                sides = [by_arm.get(arm, set()) for arm in self.arms]
                if is_text(file) and sides[0] != sides[1] and all(len(side) == 1 for side in sides):
                    before, after = (next(iter(side)) for side in sides)
                    if NAMED.fullmatch(before) and NAMED.fullmatch(after):
                        yield distribution, file, before, after


def is_text(file: str) -> bool:
    """Return whether a file, by the path that a rank told, is a Python module of a package: no way
    out of its folder.
    """
    return (
        file.endswith(".py")
        and not file.startswith("/")
        and ".." not in file.split("/")
        and "\0" not in file
    )


def text_path(digest: str) -> str:
    """Where the text of a module lies, by its sha256."""
    return f"{FOLDER}/{digest}.py"


def chosen(pairs: Iterable[tuple[str, str]], sizes: Mapping[str, int | None]) -> set[str]:
    """Which texts are kept, by sha256: of each pair both or none, the smallest pairs first, while
    there is room.

    Args:
        pairs: sha256 of both texts of a module.
        sizes: of each in bytes; None where it cannot be had.
    """
    known: list[tuple[int, tuple[str, str]]] = []
    for pair in set(pairs):
        both = [sizes[digest] for digest in pair]
        if all(size is not None and size <= TEXT_LIMIT for size in both):
            known.append((sum(size or 0 for size in both), pair))
    kept: set[str] = set()
    room = BUDGET
    for _, pair in sorted(known):
        needed = sum(sizes[digest] or 0 for digest in set(pair) - kept)
        if needed <= room:
            room -= needed
            kept.update(pair)
    return kept


def difference(before: bytes, after: bytes) -> list[str]:
    """Return a unified diff of two texts without the names of the files; empty where they read
    alike.

    Lines end at line feeds alone, so that whatever else ends a line is seen; what is not UTF-8 is
    escaped. Tables of very many short lines are not compared: that takes minutes.
    """
    old = _lines(before)
    new = _lines(after)
    if max(len(old), len(new)) > LINES_COMPARED:
        return [f"more than {LINES_COMPARED} lines: not compared"]
    diff = difflib.unified_diff(old, new, lineterm="", n=3)
    return [bounded(line, LINE_LIMIT) for line in diff][2:]


def _lines(text: bytes) -> list[str]:
    lines = text.decode("utf-8", "backslashreplace").split("\n")
    return [*lines[:-1], *([lines[-1], "\\ No newline at end of file"] if lines[-1] else [])]


class Libraries(TrialReader):
    """Hears every trial of a run once, and says what changed between the libraries of its arms."""

    def __init__(
        self,
        run: RunFacts,
        differing: Collection[str],
        read: Callable[[str], bytes],
        *,
        arms: tuple[str, str],
    ) -> None:
        self._run = run
        self._arms = arms
        self._differing = differing
        self._read = read
        self._lists: dict[str, dict[str, set[int]]] = {}

    def hear(self, evidence: str, history: History) -> None:
        """Take one trial. A reference runs the candidate's code, and is not one of its ranks."""
        del evidence
        arm = str(history.about().get("arm"))
        is_rank = arm != "reference" or arm in self._arms
        for rank in range(history.size) if self._differing and not history.is_of_programs else ():
            for seen in history.said(rank, "subject.loaded"):
                if isinstance(digest := seen.event.values.get("packages"), str) and NAMED.fullmatch(
                    digest
                ):
                    lists = self._lists.setdefault(arm if is_rank else "candidate", {})
                    lists.setdefault(digest, set()).update((rank,) if is_rank else ())

    def changes(self, names: Collection[str]) -> list[LibraryChange]:
        """Return what changed, by distribution.

        Args:
            names: the paths of the evidence.

        Raises:
            RecordError: a text is missing, of no module, or another.
        """
        loaded = LoadedLibraries(self._arms)
        for arm, lists in sorted(self._lists.items()):
            for digest, ranks in sorted(lists.items()):
                if (path := path_of(digest)) in names:
                    loaded.add(arm, self._read(path), of=self._differing, ranks=ranks)
        pairs = {
            (distribution, file): (before, after)
            for distribution, file, before, after in loaded.pairs()
        }
        texts = self._texts(set(pairs.values()), names)
        diffs = {
            place: difference(texts[pair[0]], texts[pair[1]])
            for place, pair in pairs.items()
            if pair[0] in texts and pair[1] in texts
        }
        shown = _shown(diffs)
        return [
            LibraryChange(
                distribution=distribution,
                versions={
                    arm: installed(self._run, arm)[1].get(distribution) for arm in self._arms
                },
                alike=sum(
                    self._is_alike(by_arm)
                    for by_arm in loaded.digests.get(distribution, {}).values()
                ),
                modules=[
                    ModuleChange(
                        file=file,
                        digests={arm: sorted(by_arm.get(arm, ())) for arm in self._arms},
                        only=loaded.only(distribution, file),
                        lines=diffs.get((distribution, file), [])[
                            : shown.get((distribution, file), 0)
                        ],
                        more=max(
                            0,
                            len(diffs.get((distribution, file), ()))
                            - shown.get((distribution, file), 0),
                        ),
                        why="" if diffs.get((distribution, file)) else self._why(file, by_arm),
                    )
                    for file, by_arm in sorted(loaded.digests.get(distribution, {}).items())
                    if not self._is_alike(by_arm)
                ],
                untold=loaded.untold,
            )
            for distribution in sorted(self._differing)
        ]

    def _texts(
        self, pairs: Collection[tuple[str, str]], names: Collection[str]
    ) -> dict[str, bytes]:
        """Return the texts that are kept, by sha256: those that have to be.

        Raises:
            RecordError: one is missing, of no module, or another.
        """
        left = self._run.texts_left
        asked = {digest for pair in pairs for digest in pair}
        there = {name for name in names if name.startswith(f"{FOLDER}/")}
        if odd := sorted(there - {text_path(digest) for digest in asked}):
            raise RecordError(f"{odd[0]} is the text of no module that differs between the arms")
        texts = {
            digest: self._read(text_path(digest))
            for digest in sorted(asked)
            if text_path(digest) in there
        }
        for digest, text in texts.items():
            if sha256(text) != digest:
                raise RecordError(f"{text_path(digest)} is not the module that ranks loaded")
        if odd := sorted(asked - texts.keys() ^ left.keys()):
            how = (
                "is missing" if odd[0] in asked else "is said to be left out, and is not asked for"
            )
            raise RecordError(f"{text_path(odd[0])} {how}")
        if (
            chosen(pairs, {**left, **{digest: len(text) for digest, text in texts.items()}})
            != texts.keys()
        ):
            raise RecordError(f"other texts of modules lie in {FOLDER} than there is room for")
        return texts

    def _why(self, file: str, by_arm: Mapping[str, Collection[str]]) -> str:
        """Why there is no diff of a file."""
        left = [
            self._run.texts_left[digest]
            for side in by_arm.values()
            for digest in side
            if digest in self._left
        ]
        match [len(by_arm.get(arm, ())) for arm in self._arms]:
            case [0, _] | [_, 0]:
                return "only one arm told of it"
            case [1, 1] if not all(
                NAMED.fullmatch(digest) for side in by_arm.values() for digest in side
            ):
                return "a rank could not read it"
            case [1, 1] if not is_text(file):
                return "not Python source"
            case [1, 1] if None in left:
                return "its text was not found any more"
            case [1, 1] if left:
                return "its text is too large to be kept here"
            case [1, 1]:
                return "the texts read alike, their bytes differ"
        return "ranks of one arm loaded several versions of it"

    def _is_alike(self, by_arm: Mapping[str, Collection[str]]) -> bool:
        sides = [by_arm.get(arm, ()) for arm in self._arms]
        return len(sides[0]) == 1 and sides[0] == sides[1]

    @property
    def _left(self) -> Collection[str]:
        return self._run.texts_left.keys()


def _shown(diffs: Mapping[tuple[str, str], Sequence[str]]) -> dict[tuple[str, str], int]:
    """How many lines of each diff are shown.

    The short ones first: a long one must not push them out.
    """
    shown = dict[tuple[str, str], int]()
    room = RUN_LINES
    for _, place in sorted((len(lines), place) for place, lines in diffs.items()):
        shown[place] = min(len(diffs[place]), MODULE_LINES, room)
        room -= shown[place]
    return shown


LINES = 200
FILE_LINES = 200
LOADED_LINES = 600


class ChangedCode(TrialReader):
    """Files in which two arms differ, and which of them ranks loaded; heard trial by trial."""

    def __init__(self, arms: Mapping[str, ArmSummary], read: Callable[[str], bytes]) -> None:
        self._arms = arms
        self._read = read
        self._loaded: set[str] = set()

    def hear(self, evidence: str, history: History) -> None:
        """Take the files of the arm that the ranks of a trial loaded."""
        del evidence
        for rank in range(history.size):
            self._loaded.update(file for file, _ in loaded_files(history, rank))

    def lines(self, environment: Sequence[str]) -> list[str]:
        """Return the diff: arguments, environments, files.

        Files that ranks loaded come first, the shortest diff of them first, and no file takes the
        place of all others: of two commits of another project most files that differ were loaded by
        nobody.
        """
        other, _ = compared(self._arms)
        if other not in self._arms:
            return []
        before = self._arms[other]
        after = self._arms["candidate"]
        lines: list[str] = []
        if before.arguments != after.arguments:
            lines += [f"-with: {before.arguments}", f"+with: {after.arguments}"]
        lines += environment
        differ = [
            file
            for file in sorted(before.files.keys() | after.files.keys())
            if before.files.get(file) != after.files.get(file)
        ]
        mine = [file for file in differ if file in self._loaded]
        if not mine:
            for file in differ:
                lines += self._diff(other, file)
            return _cut(lines, LINES)
        diffs = sorted((self._diff(other, file) for file in mine), key=lambda one: (len(one), one))
        for diff in diffs:
            lines += _cut(diff, FILE_LINES)
        lines = _cut(lines, LOADED_LINES)
        if silent := len(differ) - len(mine):
            what = (
                "file differs that no rank loaded"
                if silent == 1
                else "files differ that no rank loaded"
            )
            lines.append(f"... ({silent} more {what}: compare the folders in {SOURCE_FOLDER})")
        return lines

    def _diff(self, other: str, file: str) -> list[str]:
        called: Mapping[str, str] = CALLED if other == "reference" else {}
        old, new = (
            (
                self._read(f"{SOURCE_FOLDER}/{arm}/{file}")
                .decode("utf-8", "backslashreplace")
                .splitlines()
                if file in self._arms[arm].files
                else []
            )
            for arm in (other, "candidate")
        )
        names = [f"{called.get(arm, arm)}/{file}" for arm in (other, "candidate")]
        return list(difflib.unified_diff(old, new, names[0], names[1], lineterm="", n=3))


def _cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [
        *lines[:most],
        f"... ({len(lines) - most} more lines: compare the folders in {SOURCE_FOLDER})",
    ]
