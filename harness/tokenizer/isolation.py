"""Ask a child process with limits about files that nobody vouches for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.forms.kernel import signal_name
from harness.forms.text import visible
from harness.tokenizer.identity import Identity
from harness.tokenizer.problem import Absent, Forbidden, NotComparable, Unreadable

MEMORY = 2 << 30
SECONDS = 60
_REFUSALS = {kind.__name__: kind for kind in (Absent, Forbidden)}
# What an interpreter may need to start at all.
KEPT = {
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONHOME",
}


def identify_folder(
    path: str | os.PathLike[str], *, memory: int = MEMORY, seconds: int = SECONDS
) -> Identity:
    """Return the identity of a folder that holds a tokenizer, or of a file of any format.

    Formats are tokenizer.json, GGUF, SentencePiece, tiktoken and tekken.

    Nothing is imported from the folder, nothing is written, and transformers is not needed.

    Args:
        path: the folder or the file.
        memory: bytes of address space that reading may take.
        seconds: of CPU time, and of time on the clock.

    Raises:
        Unreadable: the files are missing, damaged, malicious, or not a tokenizer; the message says
            which and why.
    """
    text = ask("identity", [path], memory=memory, seconds=seconds)
    return Identity.from_json(text)


def ask(
    question: str,
    paths: list[str | os.PathLike[str]],
    *,
    memory: int = MEMORY,
    seconds: int = SECONDS,
) -> Any:
    """Put a question about files to a child process; `harness.tokenizer.child` knows which.

    Raises:
        Unreadable: it refused the files, or was ended by a limit.
        NotComparable: the files answer no such question.
    """
    named = [os.fspath(path) for path in paths]
    for name in named:
        if "\0" in name or not name:
            raise Unreadable(
                f"{name!r} is not a valid path; a path must not be empty or contain a NUL"
            )
    request = json.dumps(
        {"question": question, "paths": named, "memory": memory, "seconds": seconds}
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.tokenizer.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        # Ctrl-C at the terminal reaches us alone: we end the child, and it writes no traceback.
        start_new_session=True,
    ) as child:
        try:
            said, complaint = child.communicate(
                request.encode("utf-8", "surrogateescape"), timeout=seconds
            )
        except subprocess.TimeoutExpired:
            child.kill()
            raise Unreadable(
                f"{named[0]}: the file could not be read within {seconds} s; reading was stopped"
            ) from None
        except BaseException:
            child.kill()
            raise
    if child.returncode < 0:
        raise Unreadable(f"{named[0]}: {_death(-child.returncode, memory=memory, seconds=seconds)}")
    try:
        answer = json.loads(said)
    except ValueError:
        last = complaint.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:300]
        raise Unreadable(
            f"{named[0]}: the process that read it exited with code {child.returncode}: {last}"
        ) from None
    if "not comparable" in answer:
        raise NotComparable(answer["not comparable"])
    if "refused" in answer:
        # Names of files and texts of errors come from files that nobody vouches for; a terminal
        # would obey them.
        raise _REFUSALS.get(answer.get("sort"), Unreadable)(visible(answer["refused"]))
    return answer["answer"]


def _death(number: int, *, memory: int, seconds: int) -> str:
    if number == signal.SIGXCPU:
        return f"reading it takes more than {seconds} s of CPU time, which no real tokenizer does"
    return (
        f"the process that read it was killed by {signal_name(number)}, because the tokenizers"
        f" library crashed or needed more than {memory} bytes"
    )


def environment() -> dict[str, str]:
    """Variables of such a process: enough to import the same libraries, and nothing that changes
    what they do.
    """
    kept = {name: value for name, value in os.environ.items() if name in KEPT}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAYON_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
