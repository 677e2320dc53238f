"""Whether errors stand where the code of their arm has that line: two files of the evidence state
one fact. Pure.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Mapping

from harness.events import Event
from harness.forms.strict_json import JSON
from harness.history import History
from harness.reason import RefusalWord
from harness.record.facts import SOURCE_FOLDER
from harness.record.model import ArmSummary, Contradiction
from harness.record.trial_reader import TrialReader

SOURCE_LIMIT = 300
"""Characters of a source line that a rank reports (`harness.rank.failure`)."""


class Frames(TrialReader):
    """The source lines that ranks reported with their errors, held against the files of their
    arm.
    """

    def __init__(self, arms: Mapping[str, ArmSummary], read: Callable[[str], bytes]) -> None:
        self._arms = arms
        self._read = read
        self._lines: dict[str, list[str]] = {}

    def hear(self, evidence: str, history: History) -> None:
        """Take in a trial.

        Only of files that the rank loaded as the evidence holds them: of others it does not hold
        the text.

        Raises:
            Contradiction: an error stands at a line that the file has not, or that reads otherwise
                there.
        """
        arm = str(history.about().get("arm"))
        if arm not in self._arms:
            arm = "candidate"  # a reference runs the candidate's code
        files = self._arms[arm].files
        folder = f"{SOURCE_FOLDER}/{arm}"
        for rank in range(history.size):
            seen = history.error(rank)
            if seen is None:
                continue
            loaded = loaded_files(history, rank)
            for frame in _frames(seen.event):
                file = frame.get("file")
                line = frame.get("line")
                if not isinstance(file, str) or not isinstance(line, int) or file not in files:
                    continue
                if loaded.get(file) != files[file]:
                    continue
                text = self._line(f"{folder}/{file}", line)
                if text is not None and frame.get("source") not in ("", text):
                    why = (
                        f"line {seen.line} places an error at {file}, line {line}, which reads"
                        f" {text[:120]!r}"
                    )
                    found = f"{why}, not {str(frame.get('source'))[:120]!r}"
                    word = RefusalWord.EVENTS_OF_ANOTHER_TRIAL
                    raise Contradiction(word, f"{evidence}, {found}")

    def _line(self, path: str, number: int) -> str | None:
        """Return a line as Python shows it.

        Empty where there is none, None where the file is not text.
        """
        if path not in self._lines:
            self._lines[path] = _text(self._read(path))
        lines = self._lines[path]
        if not lines:
            return None
        return lines[number - 1].strip()[:SOURCE_LIMIT] if 1 <= number <= len(lines) else ""


def _text(data: bytes) -> list[str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).readlines()
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return []


def loaded_files(history: History, rank: int) -> dict[str, JSON]:
    """Return the digest of each file of the arm that a rank says it loaded."""
    found: dict[str, JSON] = {}
    for seen in history.said(rank, "subject.loaded"):
        modules = seen.event.values.get("modules")
        for module in modules if isinstance(modules, list) else ():
            if isinstance(module, dict) and isinstance(file := module.get("file"), str):
                found[file] = module.get("sha256")
    return found


def _frames(error: Event) -> list[Mapping[str, JSON]]:
    """Return the frames inside the subject, and the one that the error names as its place."""
    listed = error.values.get("frames")
    frames = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    own: list[Mapping[str, JSON]] = [one for one in frames if one.get("subject") is True]
    return [*own, error.values] if error.values.get("file") is not None else own
