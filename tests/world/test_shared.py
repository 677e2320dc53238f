"""The folder that the ranks of one world share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.backends import KINDS

READY = 'echo \'{"event": "ready"}\' >&3; read -r answer <&4\n'


RING = KINDS["mlx-ring"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("warm", "backend"),
    [
        (True, "gloo"),
        # Fresh ranks that import torch take seconds.
        pytest.param(
            False,
            "mlx-ring",
            marks=pytest.mark.skipif(RING.refusal(size=3) is not None, reason="no ring"),
        ),
    ],
)
def test_ranks_share_a_folder_that_is_empty_at_first_and_gone_afterwards(
    live: Callable[..., Any], warm: bool, backend: str
) -> None:
    """Every rank sees what its peers left; the next world finds nothing of it."""
    folders = set()
    for _ in range(2):
        lived = live("calm:share", size=3, warm=warm, backend=backend)
        assert lived.passed, lived.findings
        assert [lived.said(rank, "found")[0].values["names"] for rank in range(3)] == [[], [], []]
        left = [lived.said(rank, "left")[0].values for rank in range(3)]
        assert [told["names"] for told in left] == [["rank-0", "rank-1", "rank-2"]] * 3
        folders |= {told["folder"] for told in left}
    assert len(folders) == 2
    assert not any(Path(folder).exists() for folder in folders)


def test_programs_share_one_too(live: Callable[..., Any], tmp_path: Path) -> None:
    """RANKPROOF_SHARED names the folder for ranks in any language."""
    code = tmp_path / "code"
    code.mkdir()
    script = 'touch "$RANKPROOF_SHARED/rank-$RANKPROOF_RANK"\n' + READY
    script += (
        'printf \'{"event": "left", "values": {"names": "%s"}}\\n\' "$(ls "$RANKPROOF_SHARED" | tr'
        ' "\\n" " ")" >&3\n'
    )
    (code / "rank.sh").write_text(script)
    lived = live("", program=("sh", "rank.sh"), folder=code, backend="none", warm=False, size=2)
    assert lived.passed, lived.findings
    assert [lived.said(rank, "left")[0].values["names"] for rank in range(2)] == [
        "rank-0 rank-1 "
    ] * 2
