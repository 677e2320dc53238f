"""What ranks kept lies where no rank finds it: not by a name, and not through the harness."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kit.commands import ROOT

# A harness that is not root, and a child of it as a rank is: what it opens of its parent's
# descriptors.
SCRIPT = """
import os, shutil, tempfile
from pathlib import Path
from harness.rank.process import keep_private
from harness.run.artefacts import Spool

def look():
    reader, writer = os.pipe()
    if not os.fork():
        os.close(reader)
        seen = []
        for number in range(3, 64):
            try:
                seen.append(os.read(os.open(f"/proc/{os.getppid()}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK), 6))
            except OSError:
                pass
        os.write(writer, str(b"answer" in seen).encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    return os.read(reader, 9).decode()

if not os.geteuid():
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
keep_private(private=False)
folder = Path(tempfile.mkdtemp(dir="/tmp"))
(folder / "kept").write_bytes(b"answer")
with (folder / "kept").open("rb") as plain:
    (folder / "kept").unlink()
    print(look())
(folder / "kept").write_bytes(b"answer")
spool = Spool(folder)
piece = spool.add(folder / "kept")
(folder / "kept").unlink()
print(look(), bytes(piece.content()).decode())
spool.close()
shutil.rmtree(folder)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="Linux lists what a process has open"
)
def test_a_rank_cannot_open_what_was_kept_through_the_harness() -> None:
    """A file without a name is opened by a child through /proc.

    The spool's is not, and the harness reads it.
    """
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout.split("\n")[:2] == ["True", "False answer"], run.stderr
