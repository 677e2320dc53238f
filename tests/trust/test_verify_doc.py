"""The lines of docs/verify.md do what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.trust import verification

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.signed_runs import Run

PAGE = Path(__file__).parents[2] / "docs" / "verify.md"
SHELL = shutil.which("dash") or shutil.which("sh") or "sh"
LOG = "evidence/trial-1/rank0.log"


def _check(run: Run) -> subprocess.CompletedProcess[str]:
    (run.folder.parent / "allowed_signers").write_text(run.keys.line("ci"))
    found = re.search(r"```sh\n(.*?)\n```\n\n", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    with tempfile.TemporaryDirectory() as folder:  # the lines leave one behind in it
        environment = os.environ | {"TMPDIR": folder}
        return subprocess.run(
            [SHELL, "-c", found[1]],
            cwd=run.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


def test_lines_accept_a_good_folder(run: Run) -> None:
    """The lines of the page accept a folder nobody touched."""
    done = _check(run)
    assert done.returncode == 0, done
    assert done.stdout.endswith("signed by ci@example.org, and every file is the signed one\n")


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(
            lambda run: run.edit(lambda b: b.replace(b"pass", b"fail", 1)), id="text edited"
        ),
        pytest.param(lambda run: run.edit(lambda b: b + b"more\n"), id="text appended"),
        pytest.param(lambda run: run.edit(lambda b: b * 2), id="two reports"),
        pytest.param(lambda run: run.edit(lambda b: b.replace(b"\n", b"\r\n")), id="line ends"),
        pytest.param(
            lambda run: run.edit(lambda b: b[: b.index(b"-----")]), id="signature removed"
        ),
        pytest.param(lambda run: run.sign(key="stranger"), id="stranger"),
        pytest.param(lambda run: run.sign(namespace="git"), id="namespace"),
        pytest.param(lambda run: run.edit(lambda b: b + b"x", LOG), id="evidence edited"),
        pytest.param(
            lambda run: (run.edit(lambda b: b + b"x", LOG), run.write_manifest()),
            id="manifest edited",
        ),
        pytest.param(lambda run: (run.folder / LOG).unlink(), id="evidence removed"),
        pytest.param(lambda run: (run.folder / "more").write_text("x"), id="evidence added"),
    ],
)
def test_lines_refuse_an_attack(run: Run, attack: Callable[[Run], object]) -> None:
    """The lines of the page refuse what the command refuses, and never print their last line."""
    attack(run)
    done = _check(run)
    assert done.returncode != 0
    assert "every file is the signed one" not in done.stdout


def test_page_lists_every_word() -> None:
    """The page explains every word that verification can answer with."""
    rules = " ".join((verification.__doc__ or "").split())
    words = set(re.findall(r"\b[A-Z]{2,}(?: [A-Z]+)+\b", rules)) | {"UNSIGNED", "TRUNCATED"}
    listed = set(
        re.findall(r"^\| \w+ \| ([A-Z ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert listed == words
