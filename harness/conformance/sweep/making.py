"""A sweep over servers as it is made: each server asked in a conformance of its own, and packed."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from harness.conformance.engine import ENGINES, EngineError, engine_of
from harness.conformance.record import PLAIN
from harness.conformance.run import ConformanceError, ConformanceSettings, conform, demand_known
from harness.conformance.sweep.judged import ServedSweep
from harness.conformance.sweep.record import FORMAT, ServedFacts, ServerPart, plan
from harness.record.results import ResultsFolder
from harness.report.view import checked
from harness.reproduce.bundle import bundle
from harness.run.run import Interrupted
from harness.series.series import LET_OUT, MAKING, Nothing, PlannedPart, SeriesError, SeriesOrigin
from harness.trust import statement
from harness.trust.key import Signer

ALL: Final = "all"
"""Every mode that an engine has."""


class MakingSweep(ServedSweep):
    """A sweep whose servers are asked here.

    Attributes:
        account: hears in lines how far a conformance is.
        api_key: sent to addresses as a bearer token.
    """

    def __init__(
        self, account: Callable[[str], None] = lambda _: None, api_key: str | None = None
    ) -> None:
        self.account = account
        self.api_key = api_key

    def make(
        self,
        part: PlannedPart,
        facts: ServedFacts,
        folder: ResultsFolder,
        *,
        signer: Signer | None,
        jobs: int,
    ) -> float:
        """Ask one server, and take its signed report in, packed."""
        del jobs  # one server at a time: rows compare times
        assert isinstance(part, ServerPart)
        making = folder.path / MAKING
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        settings = ConformanceSettings(
            target=part.target,
            mode=part.mode,
            results=making,
            model=facts.model,
            api_key=self.api_key,
            rows=tuple(facts.rows),
            every=facts.every,
            may_break=facts.may_break,
            within=facts.within,
            timeout=facts.timeout,
            seed=facts.seed,
            unstarted=True,
        )
        try:
            finished = conform(settings, signer, self.account)
        except (ConformanceError, EngineError) as error:
            raise SeriesError(f"{part.target}: {error}") from None
        except KeyboardInterrupt:
            raise Interrupted from None
        for view in (*checked(), statement.NAME):  # made of what is signed, and larger than it
            (finished.folder / view).unlink(missing_ok=True)
        packed = making / f"{part.name}.tar.xz"
        bundle(finished.folder, packed, allowed=LET_OUT)
        folder.take(part.path, packed)
        shutil.rmtree(making, ignore_errors=True)
        return finished.record.facts.seconds


# Nine arguments: the options of the command, each with its default.
def facts_of(
    *,
    targets: Sequence[str],
    modes: Sequence[str] = (),
    rows: Sequence[str] = (),
    every: bool = False,
    may_break: bool = False,
    within: float = 300.0,
    timeout: float = 30.0,
    model: str | None = None,
    seed: int | None = None,
) -> Callable[[SeriesOrigin], ServedFacts]:
    """Return what a new sweep is going to do, once it is known who makes it.

    Args:
        targets: engines with their releases, or addresses; nothing for the engines that are
            installed here.
        modes: of every engine that has them, `all` for all; nothing for `plain`.
        rows: only these, and the plain completion; nothing for all but the long ones.
        every: whether the long ones are asked too.
        may_break: whether rows may be asked that could harm a server that is not ours.
        within: seconds for all rows of one server.
        timeout: seconds for one request.
        model: name in requests to an address.
        seed: of the words in prompts.

    Raises:
        harness.series.series.Nothing: there is no such engine, release, mode or row.
    """
    chosen = list(targets) or [name for name, engine in ENGINES.items() if not engine.lacks()]
    if not chosen:
        raise Nothing(
            f"none of {', '.join(ENGINES)} is installed here; install one of them, or pass the"
            " server to test"
        )
    if len(set(chosen)) != len(chosen):
        raise Nothing("a server is listed twice; list each server only once")
    some = [_modes(target, modes) for target in chosen]
    for target, names in zip(chosen, some, strict=True):
        for mode in names:
            settings = ConformanceSettings(
                target=target, mode=mode, results=Path(), rows=tuple(rows)
            )
            try:
                demand_known(settings)
            except ConformanceError as error:
                raise Nothing(str(error)) from None
    if odd := set(modes) - {ALL, *(name for names in some for name in names)}:
        raise Nothing(f"none of these servers has the mode {min(odd)!r}")
    parts = plan(chosen, some)
    number = secrets.randbelow(2**31) if seed is None else seed

    def facts(origin: SeriesOrigin) -> ServedFacts:
        return ServedFacts(
            **origin,
            format=FORMAT,
            seed=number,
            rows=list(rows),
            every=every,
            may_break=may_break,
            within=within,
            timeout=timeout,
            model=model,
            parts=parts,
        )

    return facts


def _modes(target: str, modes: Sequence[str]) -> list[str]:
    """Return the modes in which a server is asked, of those that were named."""
    name = engine_of(target)
    known = [PLAIN] if name is None else [PLAIN, *ENGINES[name].modes]
    if ALL in modes:
        return known
    return [mode for mode in known if mode in modes] or [PLAIN]
