"""How the libraries that two arms have in different releases differ.

Ranks report each file that they loaded of such a library, with its sha256. Where the content of a
Python module differs between the arms, both texts are evidence, named by that sha256:
`evidence/library/<sha256>.py`. The RECORD of each release is evidence too, as far as it came with
the wheel: the facts of the run state its sha256 for the package, `evidence/library/<sha256>.RECORD`
holds its lines. The report follows from these files, for the run as for a verifier. A run keeps up
to 1 MiB of a file and 4 MiB altogether, the smallest pairs first. It states the size of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.forms.digest import sha256
from harness.forms.distribution import MODULE_SUFFIXES, normal
from harness.history import History
from harness.record.changed import TextDifference, difference
from harness.record.facts import ArmEnvironmentFacts, EnvironmentFacts, RunFacts, installed
from harness.record.model import LibraryChange, ModuleChange, RecordError
from harness.record.trial_reader import TrialReader
from harness.stats.provenance import NAMED, path_of, told

FOLDER = "evidence/library"
TEXT_LIMIT = 2**20
"""Bytes of a module or RECORD that is kept."""
BUDGET = 4 * 2**20
"""Bytes that are kept of a run."""
RUN_LINES = 600
"""Lines of difference that are shown of a run."""
RECORD = "RECORD"
Place = tuple[str, str]
"""Distribution and file; the file of a release's list of files is `RECORD`."""


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

    def pairs(self) -> Iterator[tuple[Place, tuple[str, str]]]:
        """Yield each Python module of which each arm loaded another content, with both digests."""
        for distribution, files in sorted(self.digests.items()):
            for file, by_arm in sorted(files.items()):
                sides = [by_arm.get(arm, set()) for arm in self.arms]
                if is_text(file) and sides[0] != sides[1] and all(len(side) == 1 for side in sides):
                    before, after = (next(iter(side)) for side in sides)
                    if NAMED.fullmatch(before) and NAMED.fullmatch(after):
                        yield (distribution, file), (before, after)


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


def text_path(digest: str, file: str = "") -> str:
    """Return where a module or a RECORD is kept, by its sha256."""
    return f"{FOLDER}/{digest}.{RECORD if file == RECORD else 'py'}"


def paths_of(pairs: Mapping[Place, tuple[str, str]]) -> dict[str, str]:
    """Return where each text of these pairs is kept, by its sha256."""
    return {digest: text_path(digest, file) for (_, file), pair in pairs.items() for digest in pair}


def stated_records(
    distributions: Iterable[str],
    environments: Mapping[str, ArmEnvironmentFacts],
    machine: EnvironmentFacts,
    *,
    arms: tuple[str, str],
) -> dict[Place, tuple[str, str]]:
    """Return the sha256 of both RECORDs of each distribution for which both are stated.

    Args:
        distributions: their normal names.
        environments: of the arms that have their own.
        machine: the harness' environment, in which all other ranks ran.
        arms: between which the report says what changed.
    """
    stated = [
        {
            normal(package.name): package.record
            for package in environments.get(arm, machine).packages
        }
        for arm in arms
    ]
    found: dict[Place, tuple[str, str]] = {}
    for distribution in distributions:
        before, after = (records.get(distribution) for records in stated)
        if before is not None and after is not None:
            found[distribution, RECORD] = (before, after)
    return found


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
        modules = dict(loaded.pairs())
        records = stated_records(
            self._differing, self._run.environments, self._run.environment, arms=self._arms
        )
        texts = self._texts({**modules, **records}, names)
        changed = {
            place: difference(texts[before], texts[after])
            for place, (before, after) in modules.items()
            if before in texts and after in texts
        }
        diffs = dict(sorted(changed.items(), key=_most_changed_first))
        shown = dict(zip(diffs, shares([len(diff.lines) for diff in diffs.values()]), strict=True))
        found = []
        for distribution in sorted(self._differing):
            files = loaded.digests.get(distribution, {})
            differ = [file for file, by_arm in files.items() if not self._is_alike(by_arm)]
            changes = [
                self._module(
                    loaded,
                    (distribution, file),
                    diffs.get((distribution, file)),
                    shown.get((distribution, file), 0),
                )
                for file in sorted(differ)
            ]
            changes.sort(key=lambda module: module.removed + module.added, reverse=True)
            versions = {arm: installed(self._run, arm)[1].get(distribution) for arm in self._arms}
            found.append(
                LibraryChange(
                    distribution=distribution,
                    versions=versions,
                    alike=len(files) - len(differ),
                    modules=changes,
                    unloaded=_unloaded(records.get((distribution, RECORD)), texts, loaded=files),
                    untold=loaded.untold,
                )
            )
        return found

    def _texts(
        self, pairs: Mapping[Place, tuple[str, str]], names: Collection[str]
    ) -> dict[str, bytes]:
        """Return the texts that are kept, by sha256: those that have to be.

        Raises:
            RecordError: one is missing, of no module, or another.
        """
        left = self._run.texts_left
        paths = paths_of(pairs)
        there = {name for name in names if name.startswith(f"{FOLDER}/")}
        if odd := sorted(there - set(paths.values())):
            raise RecordError(
                f"{odd[0]} does not belong to a library that differs between the arms"
            )
        texts = {digest: self._read(path) for digest, path in paths.items() if path in there}
        for digest, text in texts.items():
            if sha256(text) != digest:
                raise RecordError(
                    f"the content of {paths[digest]} does not match the digest in its name"
                )
        if odd := sorted(paths.keys() - texts.keys() ^ left.keys()):
            if odd[0] in paths:
                raise RecordError(f"{paths[odd[0]]} is missing")
            raise RecordError(
                f"the run lists {odd[0]} as omitted, although the arms do not need this file"
            )
        sizes = {**left, **{digest: len(text) for digest, text in texts.items()}}
        if chosen(pairs.values(), sizes) != texts.keys():
            raise RecordError(
                f"{FOLDER} must contain every text that fits within its size limit, and no others"
            )
        return texts

    def _module(
        self, loaded: LoadedLibraries, place: Place, diff: TextDifference | None, shown: int
    ) -> ModuleChange:
        distribution, file = place
        by_arm = loaded.digests[distribution][file]
        if diff is None:
            diff = TextDifference(why=self._why(file, by_arm))
        return ModuleChange(
            file=file,
            digests={arm: sorted(by_arm.get(arm, ())) for arm in self._arms},
            only=loaded.only(distribution, file),
            removed=diff.removed,
            added=diff.added,
            lines=diff.lines[:shown],
            more=len(diff.lines) - shown,
            why=diff.why,
        )

    def _why(self, file: str, by_arm: Mapping[str, Collection[str]]) -> str:
        """Return why a file was not compared."""
        sides = [by_arm.get(arm, ()) for arm in self._arms]
        digests = {digest for side in sides for digest in side}
        if not all(sides):
            return "reported by ranks of one arm only"
        if any(len(side) > 1 for side in sides):
            return "ranks of one arm loaded several versions"
        if not all(map(NAMED.fullmatch, digests)):
            return "a rank could not read it"
        if not is_text(file):
            return "not Python source"
        if None in [self._run.texts_left.get(digest, 0) for digest in digests]:
            return "its text no longer existed after the trials"
        return "its text is too large to keep in the evidence"

    def _is_alike(self, by_arm: Mapping[str, Collection[str]]) -> bool:
        sides = [by_arm.get(arm, ()) for arm in self._arms]
        return len(sides[0]) == 1 and sides[0] == sides[1]


def _most_changed_first(changed: tuple[Place, TextDifference]) -> tuple[int, Place]:
    place, diff = changed
    return -diff.removed - diff.added, place


def shares(lengths: Sequence[int]) -> list[int]:
    """Return how many lines of each diff are shown, `RUN_LINES` altogether.

    Half of them are shared equally, so that a short diff is not pushed out by a long one. The rest
    goes to the first diffs.

    Args:
        lengths: of the diffs, the most changed module first.
    """
    equal = RUN_LINES // 2 // max(1, sum(length > 0 for length in lengths))
    shown = [min(length, equal) for length in lengths]
    room = RUN_LINES - sum(shown)
    for place, length in enumerate(lengths):
        more = min(length - shown[place], room)
        shown[place] += more
        room -= more
    return shown


def _unloaded(
    records: tuple[str, str] | None, texts: Mapping[str, bytes], *, loaded: Collection[str]
) -> list[str] | None:
    """Return the modules that differ between two RECORDs and that no rank reported, by name.

    None where a RECORD is not in the evidence.
    """
    if records is None or not texts.keys() >= set(records):
        return None
    before, after = (_modules(texts[digest]) for digest in records)
    differ = {file for file in before.keys() | after.keys() if before.get(file) != after.get(file)}
    return sorted(differ - set(loaded))


def _modules(record: bytes) -> dict[str, str]:
    """Return the modules of a RECORD, each with the digest that is stated for it there."""
    rows = [line.rsplit(",", 2) for line in record.decode("utf-8", "backslashreplace").split("\n")]
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[0].endswith(MODULE_SUFFIXES)}
