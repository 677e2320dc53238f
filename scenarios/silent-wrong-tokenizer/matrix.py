"""Every fault of the hub × every request × every layout: the same tokenizer, an error, or silently
another one.

A cell is one load on a cold cache while one fault strikes one request. It counts only if the hub's
access log shows that the fault struck. The reference is the same files, loaded from a local folder
by transformers.

    python scenarios/silent-wrong-tokenizer/matrix.py [--layout NAME …] [--kind KIND …]
    [--healthy-again] [--jobs N]
"""

from __future__ import annotations

import argparse
import collections
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.hub import Hub, Rules
from harness.hub.layouts import LAYOUTS, cached, identity
from harness.tokenizer import Identity, TokenizerError, identify
from harness.tokenizer.loading import Loaded, load
from harness.tokenizer.loading.wire import LYING_ATTEMPTS

# As the rules file of the hub says them. `always` strikes each time, `once` only the first time.
KINDS: dict[str, dict[str, Any]] = {
    "missing": {"kind": "missing"},
    "missing-without-commit": {"kind": "missing", "commit": False},
    "rate-limit": {"kind": "rate-limit", "reset": "1s"},
    "error-503": {"kind": "error", "status": 503},
    "reset": {"kind": "reset"},
    "close": {"kind": "close"},
    "truncate": {"kind": "truncate"},
    "short": {"kind": "short"},
    "wrong-bytes": {"kind": "wrong-bytes"},
    "wrong-etag": {"kind": "wrong-etag"},
}
OPTIONS: dict[str, dict[str, object]] = {"mistral": {"fix_mistral_regex": True}}
ROLES = ("model_info", "tree", "templates")  # requests that are for no file
PER_HUB = 200  # rules that one hub takes
# Faults that are asked about again until the deadline. The deadline is what ends such a load, so it
# is short.
STAYING = frozenset({"rate-limit", "error-503", "reset", "close", "truncate"})
ENDING, PATIENT = 2.5, 60.0
Verdict = Literal["same", "error", "different", "not-struck"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One fault on one request of one layout.

    Attributes:
        layout: name of a repository.
        target: path of a file in it, or one of ROLES.
        kind: a key of KINDS.
        when: `always` or `once`.
    """

    layout: str
    target: str
    kind: str
    when: Literal["always", "once"]

    def rule(self, number: int, *, ends: bool = False) -> dict[str, Any]:
        """The rule that makes it happen, for one client only.

        With `ends`, just long enough to fail one load.
        """
        made: dict[str, Any] = {
            "id": f"cell-{number}",
            "clients": [f"cell-{number}"],
            "answer": KINDS[self.kind],
        }
        if self.target in ROLES:
            made["role"] = self.target
        else:
            made["path"] = self.target
        if self.when == "once":
            made["when"] = {"times": 1}
        elif ends:
            made["when"] = {"times": LYING_ATTEMPTS}
        return made


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a cell ended.

    Attributes:
        cell: which one.
        verdict: `not-struck` cells do not count.
        words: the error, or what differs.
        requests: requests the hub saw from it.
        seconds: wall-clock time of the load.
    """

    cell: Cell
    verdict: Verdict
    words: str
    requests: int
    seconds: float


Loader = Callable[[str, str, str, Path, Cell], object]
"""(repository, commit, endpoint, cache, cell) → a tokenizer.

Anything it raises is an error cell.
"""


def ours(repository: str, commit: str, endpoint: str, cache: Path, cell: Cell) -> object:
    """The project's loader."""
    return _load(repository, commit, endpoint, cache, cell).tokenizer


def _load(repository: str, commit: str, endpoint: str, cache: Path, cell: Cell) -> Loaded:
    return load(
        repository,
        revision=commit,
        endpoint=endpoint,
        cache=cache,
        deadline=ENDING if cell.when == "always" and cell.kind in STAYING else PATIENT,
        trust_remote_code=trusted(cell.layout),
        options=OPTIONS.get(cell.layout),
        token=False,
    )


def trusted(layout: str) -> bool:
    """Whether a layout has code of its own, which is run."""
    return layout.startswith("kimi")


def cells(layouts: Iterable[str], kinds: Iterable[str], *, folder: Path) -> list[Cell]:
    """All cells of these layouts and kinds, in a fixed order."""
    made = []
    for layout in layouts:
        place = folder / "rankproof" / layout
        files = sorted(
            path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()
        )
        for target in [*ROLES, *files]:
            for kind in kinds:
                made += [
                    Cell(layout=layout, target=target, kind=kind, when=when)
                    for when in ("always", "once")
                ]
    return made


def references(layouts: Iterable[str], *, folder: Path) -> dict[str, Identity]:
    """Identity of each layout, from its local folder."""
    return {
        layout: (
            load(
                folder / "rankproof" / layout,
                trust_remote_code=trusted(layout),
                options=OPTIONS.get(layout),
            ).identity
        )
        for layout in layouts
    }


def run(
    wanted: Sequence[Cell],
    *,
    folder: Path,
    work: Path,
    jobs: int = 4,
    loader: Loader = ours,
    again: bool = False,
) -> list[Outcome]:
    """Run cells, each with a cold cache of its own below `work`.

    Those whose fault did not strike are `not-struck`.

    Args:
        wanted: the cells.
        folder: the layouts, as `harness.hub.layouts.cached` makes them.
        work: an empty folder for caches.
        jobs: loads at the same time.
        loader: what is tried.
        again: let the fault end with the first load, and load each cell once more on its cache: a
            fault that sticks shows as `different` with a word about it. For kinds in STAYING the
            first load may outlast the fault.
    """
    known = references(sorted({cell.layout for cell in wanted}), folder=folder)
    found: list[Outcome] = []
    for first in range(0, len(wanted), PER_HUB):
        batch = wanted[first : first + PER_HUB]
        rules = Rules.model_validate(
            {
                "schema": 1,
                "rules": [cell.rule(number, ends=again) for number, cell in enumerate(batch)],
            },
            by_alias=True,
        )
        place = work / f"batch-{first}"
        with Hub(folder, rules=rules) as hub:
            outcomes = _batch(hub, batch, known, place, jobs, loader)
            struck = {access.client for access in hub.requests() if access.rules}
            asked = collections.Counter(access.client for access in hub.requests())
            before = len(hub.requests())
            healthy = _batch(hub, batch, known, place, jobs, loader) if again else []
            # A fault that was not used up by the first load makes the second an error, and sticks
            # to nothing.
            struck_again = {access.client for access in hub.requests()[before:] if access.rules}
        for number, (cell, verdict, words, seconds) in enumerate(outcomes):
            name = f"cell-{number}"
            found.append(
                Outcome(
                    cell=cell,
                    verdict=verdict if name in struck or verdict == "different" else "not-struck",
                    words=words,
                    requests=asked[name],
                    seconds=seconds,
                )
            )
        for number, (cell, verdict, words, seconds) in enumerate(healthy):
            if verdict == "different" or (
                verdict == "error" and f"cell-{number}" not in struck_again
            ):
                said = f"with a healthy hub: {words}"
                found.append(
                    Outcome(cell=cell, verdict="different", words=said, requests=0, seconds=seconds)
                )
        shutil.rmtree(place, ignore_errors=True)
    return found


def _batch(
    hub: Hub,
    batch: Sequence[Cell],
    known: dict[str, Identity],
    place: Path,
    jobs: int,
    loader: Loader,
) -> list[tuple[Cell, Verdict, str, float]]:
    def one(number: int) -> tuple[Cell, Verdict, str, float]:
        cell = batch[number]
        revision = cell.layout.partition("@")[2] or "main"
        held = hub.repositories[identity(cell.layout)].revision(revision)
        assert held is not None
        begun = time.monotonic()
        try:
            made = loader(
                identity(cell.layout),
                held.commit,
                hub.endpoint_for(f"cell-{number}"),
                place / str(number),
                cell,
            )
        except Exception as error:  # noqa: BLE001 - an error of any kind is not silent
            return cell, "error", f"{type(error).__name__}: {error}", time.monotonic() - begun
        verdict, words = compare(made, known[cell.layout])
        return cell, verdict, words, time.monotonic() - begun

    with ThreadPoolExecutor(jobs) as threads:
        return list(threads.map(one, range(len(batch))))


def compare(made: object, reference: Identity) -> tuple[Verdict, str]:
    """`same` if the semantic digest is the reference's, else `different`, in words."""
    from harness.tokenizer import difference

    try:
        found = identify(made, depth=reference.depth)
    except TokenizerError as error:
        return "different", f"it has no identity: {error}"
    if found.semantic == reference.semantic:
        return "same", ""
    return "different", "; ".join(one.words for one in difference(reference, found)[:3])


def main() -> int:
    """Run the matrix and print a line per layout, then every cell that is silently different."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", action="append", choices=sorted(LAYOUTS), help="default: all")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="default: all")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument(
        "--healthy-again", action="store_true", help="load each once more from a healthy hub"
    )
    parser.add_argument("--out", type=Path, help="write one JSON line per cell")
    options = parser.parse_args()
    layouts = options.layout or list(LAYOUTS)
    folder = cached()
    found: list[Outcome] = []
    for layout in layouts:
        wanted = cells([layout], options.kind or list(KINDS), folder=folder)
        with tempfile.TemporaryDirectory() as work:
            ended = run(
                wanted,
                folder=folder,
                work=Path(work),
                jobs=options.jobs,
                again=options.healthy_again,
            )
        found += ended
        print(
            f"{layout:22}",
            dict(sorted(collections.Counter(one.verdict for one in ended).items())),
            flush=True,
        )
    if options.out:
        options.out.write_text(
            "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in found)
        )
    counted = collections.Counter(one.verdict for one in found)
    print(
        f"{'all':22}",
        dict(sorted(counted.items())),
        "cells that count:",
        len(found) - counted["not-struck"],
    )
    silent = [one for one in found if one.verdict == "different"]
    for one in silent:
        print("SILENT", one.cell, one.words)
    print(
        dict(
            collections.Counter(
                one.words.partition(":")[0] for one in found if one.verdict == "error"
            )
        )
    )
    return 1 if silent else 0


if __name__ == "__main__":
    raise SystemExit(main())
