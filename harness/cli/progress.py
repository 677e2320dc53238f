"""Telling how far a run is: a live table on a terminal, plain lines elsewhere and where CI is
set.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from harness.cli.streams import is_watched
from harness.forms.text import visible
from harness.run.progress import MadeTrial, Progress, RunOutline
from harness.scenario import Cell

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

EVERY = 10.0
REDRAWS_PER_SECOND = 5
BAR = 20
NARROW = 60
WIDE = 90


class Spoken(Progress):
    """Says on a stream what takes long, and counts what is known so far.

    Attributes:
        flying: ranks of the worlds that were handed to a lane and have not ended.
        unexpected: candidates that failed, controls that did not where they have to, and that did
            elsewhere.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # Trials begin and end on the threads of their lanes, and a thread of its own tells of them.
        self._lock = threading.Lock()
        self._cell = self._compared = ""
        self._since = 0.0
        self.total = self.made = self.void = self.flying = 0
        self.begin = time.monotonic()
        self.candidate: Counter[str] = Counter()
        self.control: Counter[str] = Counter()
        self.unexpected: Counter[str] = Counter()

    def says(self, text: str) -> None:
        """Print a line of its own."""
        print(f"  {text}", file=self._stream, flush=True)

    def planned(self, plan: RunOutline) -> None:
        """Count from here."""
        self.total = plan.trials
        self.begin = time.monotonic()

    def compares(self, what: str) -> None:
        """Tell of it until a trial begins."""
        with self._lock:
            self._compared = what
            self._since = time.monotonic()

    def began(self, cell: Cell) -> None:
        """Count a trial that began; the time left is reckoned from the first: a reference may have
        taken minutes.
        """
        with self._lock:
            if not (self.made or self.void or self.flying):
                self.begin = time.monotonic()
            self.flying += cell.ranks
            self._cell = cell.id
            self._compared = ""

    def ended(self, trial: MadeTrial) -> None:
        """Count a trial that ended."""
        with self._lock:
            self.flying -= trial.cell.ranks
            self.void += trial.void
            # A void trial is made again, so it brings the end no nearer.
            self.made += not trial.void
            if not trial.void:
                (self.candidate if trial.arm == "candidate" else self.control)[trial.cell.id] += 1
                self.unexpected[trial.cell.id] += not trial.as_expected

    def left(self) -> str:
        """Time left, in words."""
        if not self.made:
            return "time left unknown yet"
        seconds = (time.monotonic() - self.begin) / self.made * max(0, self.total - self.made)
        return (
            f"about {seconds:.0f} s left" if seconds < 120 else f"about {seconds / 60:.0f} min left"
        )

    def line(self) -> str:
        """Everything in one line."""
        left = (
            f"{self._compared}: {time.monotonic() - self._since:.0f} s"
            if self._compared
            else self.left()
        )
        parts = [f"{self.made}/{self.total} trials", f"{self.flying} ranks in flight", left]
        if wrong := self.unexpected.total():
            parts.append(f"{wrong} unexpected")
        if self.void:
            parts.append(f"{self.void} void")
        return ", ".join(parts)


def progress_for(stream: TextIO) -> Spoken:
    """Live table where somebody watches, else plain lines."""
    return Watched(stream) if is_watched(stream) else Plain(stream)


class Plain(Spoken):
    """Print a line every ten seconds. Not when a trial ends: with one lane no rank is in flight
    just then.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._over = threading.Event()
        self._teller: threading.Thread | None = None

    def planned(self, plan: RunOutline) -> None:
        """Say how many trials there will be, and which cells are skipped."""
        super().planned(plan)
        for cell, why in plan.skipped.items():
            self.says(f"{cell}: SKIPPED: {why}")
        cells = len(plan.cells) - len(plan.skipped)
        self.says(f"{plan.trials} trials in {cells} cell{'' if cells == 1 else 's'}")
        # A daemon: a run that ends by an error must not wait for who only tells of it.
        self._teller = threading.Thread(target=self._tell, name="progress", daemon=True)
        self._teller.start()

    def done(self) -> None:
        """Say nothing more."""
        self._over.set()
        if self._teller is not None:
            self._teller.join()

    def _tell(self) -> None:
        while not self._over.wait(EVERY):
            with self._lock:
                line = f"{self._cell}: {self.line()}" if self._cell else self.line()
            # A stream that is gone takes nothing more; the run goes on without it.
            with contextlib.suppress(OSError, ValueError):
                self.says(line)


class Watched(Spoken):
    """Table of cells, redrawn in place and gone when the run is over."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        super().__init__(stream)
        # It moves the cursor, so it writes to the terminal itself; what it shows of a scenario is
        # escaped here.
        self._console = Console(file=getattr(stream, "bare", stream), highlight=False)
        # What the terminal cannot show must not break it: a C locale gets ASCII.
        self._ascii = not (self._console.encoding or "").lower().startswith("utf")
        self._plan: RunOutline | None = None
        self._live: Live | None = None

    def planned(self, plan: RunOutline) -> None:
        """Open the table."""
        from rich.live import Live

        self._plan = plan
        super().planned(plan)
        self._live = Live(
            console=self._console,
            get_renderable=self._table,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
        )
        self._live.start()

    def done(self) -> None:
        """Take the table away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self) -> Table:
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        plan = self._plan
        table = Table(
            box=box.ASCII if self._ascii else box.SIMPLE_HEAD,
            caption=self.line(),
            caption_justify="left",
            safe_box=True,
        )
        wide = self._console.width >= WIDE
        table.add_column("cell", overflow="fold")
        if wide:
            table.add_column("", width=BAR, no_wrap=True)
        short = self._console.width < NARROW
        for name in ("cand.", "ctrl", "odd") if short else ("candidate", "control", "unexpected"):
            # Folded, never cut: the mark of a cut is not ASCII, and would break a table of ASCII.
            table.add_column(name, justify="right", overflow="fold")
        if plan is None:
            return table
        for cell in plan.cells:
            name = escape(visible(cell.id))
            if cell.id in plan.skipped:
                table.add_row(name, *([""] if wide else []), "SKIPPED", "", "")
                continue
            done = self.candidate[cell.id] + self.control[cell.id]
            wrong = self.unexpected[cell.id]
            table.add_row(
                name,
                *([self._bar(done, plan.candidate + plan.control)] if wide else []),
                f"{self.candidate[cell.id]}/{plan.candidate}",
                f"{self.control[cell.id]}/{plan.control}",
                f"[bold]{wrong}[/bold]" if wrong else "0",
            )
        return table

    def _bar(self, done: int, total: int) -> str:
        full = BAR * min(done, total) // max(1, total)
        return ("#" if self._ascii else "━") * full + ("." if self._ascii else "╌") * (BAR - full)
