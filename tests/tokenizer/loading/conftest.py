from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tokenizer.loading.hubs import FakeHub, small


@pytest.fixture(scope="session")
def small_files() -> dict[str, bytes]:
    return small()


@pytest.fixture
def fake(small_files: dict[str, bytes]) -> Iterator[FakeHub]:
    hub = FakeHub(small_files)
    yield hub
    hub.close()


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the user's hub settings, tokens or caches reaches a test."""
    for name in (
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_TOKEN_PATH",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("RANKPROOF_TOKENIZERS", str(tmp_path / "cache"))
