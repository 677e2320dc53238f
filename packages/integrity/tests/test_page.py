"""The lines that docs/integrity.md gives to engine authors run as they stand there."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damage import SIZE, spell
from rates import PAGE

STAGES, LENGTH = 3, 12


def layers(hidden: Any) -> Any:
    """A stage that every rank has its share in: without one of them the tokens are others."""
    return np.cumsum(hidden * np.float32(1.5) + np.float32(1)) % np.float32(97)


def embed(token: int) -> Any:
    return np.arange(8, dtype=np.float32) + np.float32(token)


def chosen(hidden: Any) -> int:
    return 40 + int(hidden.sum()) % 200


def alone() -> list[int]:
    """The tokens of the whole model on one device."""
    tokens, token = [], 5
    for _ in range(LENGTH):
        hidden = embed(token)
        for _ in range(STAGES):
            hidden = layers(hidden)
        token = chosen(hidden)
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("wrong", [None, 4])
def test_the_lines_for_engine_authors_run(tmp_path: Path, wrong: int | None) -> None:
    """Three stages give the tokens of one device.

    Where the last gives an id of no vocabulary, the first raises.
    """
    block, *_ = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    tokens: list[int] = []
    raised: dict[int, BaseException] = {}
    made: list[int] = []

    def choose(hidden: Any) -> tuple[int, str]:
        made.append(SIZE if len(made) == wrong else chosen(hidden))
        return made[-1], ""

    def embedding(token: int) -> Any:
        tokens.append(token)
        return embed(token)

    def run(rank: int) -> None:
        names = {
            "rank": rank,
            "stages": STAGES,
            "length": LENGTH,
            "folder": tmp_path / "store",
            "token": 5,
            "size": SIZE,
        }
        try:
            exec(  # noqa: S102
                block,
                names | {"layers": layers, "embed": embedding, "choose": choose, "spell": spell},
            )
        # Told to the test, which is in another thread.
        except BaseException as error:  # noqa: BLE001
            raised[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(STAGES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if wrong is None:
        assert raised == {}
        assert [*tokens[1:], made[-1]] == alone()
    else:
        assert "not in this vocabulary" in str(raised[0])
        assert len(tokens) == wrong + 1
