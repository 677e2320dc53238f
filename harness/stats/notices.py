"""What a run noticed beside its question: what its subject reported as a notice, and the warnings
and tracebacks that ranks printed in trials that passed.

No check asks for any of it, so it decides nothing. A reader sees it on the first screen of a
report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from harness.events import Event
from harness.forms.model import Model
from harness.forms.text import bounded
from harness.history import History
from harness.scenario import Cell, Scenario
from harness.stats.outcome import JudgedTrial, Trial, TrialKeeper
from harness.stats.shown_trial import log_path
from harness.stats.unseen import traceback_of

NOTICE = "notice"
"""Event by which a subject reports something that no check asks for: `emit("notice", text=...)`."""
TRACEBACKS_MOST = 3
NOTICES_MOST = 20
REST = f"There were more than {NOTICES_MOST} different notices; the others are not listed."
TEXT_MOST = 400
# A warning as Python prints it: file, line, class, text. Whatever a library writes before each of
# its lines, such as `[rank1]: `, comes first.
WARNING = re.compile(rb"^(?:\[\w+\]: ?)?([^\n]*):(\d+): (\w*Warning): ([^\n]+)$", re.MULTILINE)
FOLDERS = re.compile(r".*[/\\]")


class PrintedTraceback(Model):
    """Traceback that a rank printed in a trial that passed.

    Attributes:
        cell: the cell's id.
        index: number of the candidate's trial.
        path: of the rank's log; `line` is where the traceback begins in it, from 1.
        text: its first lines, and its last ones.
    """

    cell: str
    index: int
    rank: int
    path: str
    line: int
    text: str


class Notice(Model):
    """Something a run noticed, once however often it came.

    Attributes:
        text: in words.
        trials: in how many trials, runs of a reference among them, a rank reported or printed it.
        path: of the first events or log that shows it; `line` counts from 1.
    """

    text: str
    trials: int
    path: str
    line: int


class Notices(TrialKeeper):
    """Takes the judged trials of a scenario one after the other, and keeps what stood out."""

    def __init__(
        self, scenario: Scenario, *, read: Callable[[str], bytes], names: Collection[str]
    ) -> None:
        """Begin.

        Args:
            scenario: whose trials are taken.
            read: gives the bytes of an evidence file by its path.
            names: the paths there are.
        """
        self._scenario = scenario
        self._read = read
        self._evidence = names
        self._noticed: dict[str, Notice] = {}
        self._with_traceback = 0
        self.printed: list[PrintedTraceback] = []

    def take(self, judged: JudgedTrial) -> None:
        """Take one trial. A control is broken on purpose: what it prints stands out by itself."""
        if judged.arm != "candidate" or judged.trial.outcome == "void":
            return
        found = list(_reported(judged.history, judged.trial.evidence))
        if judged.trial.outcome == "pass":
            found += self._take_logs(judged.cell, judged.trial)
        self._add(found)

    def take_reference(self, evidence: str, history: History) -> None:
        """Take one run of what the cell is compared with, by the path of its events."""
        self._add(_reported(history, evidence))

    @property
    def all(self) -> list[Notice]:
        """Notices, in the order in which they first came; tracebacks before them."""
        notices = list(self._noticed.values())
        if not self.printed:
            return notices
        first = self.printed[0]
        who = self._scenario.subject.named("candidate")
        text = f"A rank printed a traceback in a trial of {who} that passed."
        traceback = Notice(text=text, trials=self._with_traceback, path=first.path, line=first.line)
        return [traceback, *notices]

    def _add(self, found: Iterable[Notice]) -> None:
        """Count the notices of one trial, each text once."""
        here: dict[str, Notice] = {}
        for notice in found:
            texts = self._noticed.keys() | here.keys() | {notice.text}
            text = (
                notice.text if len(texts) <= NOTICES_MOST or notice.text in self._noticed else REST
            )
            here.setdefault(text, notice.model_copy(update={"text": text}))
        for text, notice in here.items():
            known = self._noticed.get(text)
            trials = known.trials + 1 if known is not None else 1
            self._noticed[text] = (known or notice).model_copy(update={"trials": trials})

    def _take_logs(self, cell: Cell, trial: Trial) -> list[Notice]:
        warnings = []
        has_traceback = False
        for rank in range(cell.ranks):
            path = log_path(trial.evidence, rank)
            log = self._read(path) if path in self._evidence else b""
            if not log:
                continue
            warnings += _warnings(log, path)
            traceback = traceback_of(log)
            if traceback is None:
                continue
            has_traceback = True
            if len(self.printed) < TRACEBACKS_MOST:
                line, text = traceback
                printed = PrintedTraceback(
                    cell=cell.id, index=trial.index, rank=rank, path=path, line=line, text=text
                )
                self.printed.append(printed)
        self._with_traceback += has_traceback
        return warnings


def _reported(history: History, evidence: str) -> Iterable[Notice]:
    """Notices that ranks reported in one trial."""
    for rank in range(history.size):
        for seen in history.said(rank, NOTICE):
            if text := _text_of(seen.event):
                yield Notice(text=text, trials=1, path=evidence, line=seen.line)


def _text_of(event: Event) -> str:
    text = event.values.get("text")
    return bounded(text.strip(), TEXT_MOST) if isinstance(text, str) else ""


def _warnings(log: bytes, path: str) -> list[Notice]:
    """Warnings in a log, each once. The folder of a file is left out: it says where, not what."""
    found: dict[str, Notice] = {}
    number = 1
    counted = 0
    for match in WARNING.finditer(log):
        # Counted from the last one: a log of megabytes may be warnings alone.
        number += log.count(b"\n", counted, match.start())
        counted = match.start()
        file, line, kind, text = (
            part.decode("utf-8", "backslashreplace") for part in match.groups()
        )
        words = bounded(f"{kind} in {FOLDERS.sub('', file)}:{line}: {text.strip()}", TEXT_MOST)
        if words not in found:
            found[words] = Notice(text=words, trials=1, path=path, line=number)
        if len(found) > NOTICES_MOST:
            break
    return list(found.values())
