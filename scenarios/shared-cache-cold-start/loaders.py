# ruff: noqa: ARG001, PTH110, PTH118, S310, SIM117
"""Three ways to get a tokenizer into a folder that other processes share, and from it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.request
from pathlib import Path


def rankproof(repository, cache, *, patience):
    """Our loader; it waits for another process for a fifth of the patience, then says for whom."""
    from harness.tokenizer.loading import load

    return load(
        repository, cache=cache, deadline=10 * patience, lock_timeout=patience / 5
    ).tokenizer


def transformers(repository, cache, *, patience):
    """What everybody does: the hub's own cache, shared by all processes."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(repository, cache_dir=cache)


def by_hand(repository, cache, *, patience):
    """What scripts around `wget -nc` or `requests` do: each file straight to its name, unless
    something lies there.
    """
    from transformers import AutoTokenizer

    folder, hub = Path(cache, "by-hand"), os.environ["HF_ENDPOINT"]
    folder.mkdir(exist_ok=True)
    with urllib.request.urlopen(f"{hub}/api/models/{repository}", timeout=60) as answer:
        names = [file["rfilename"] for file in json.load(answer)["siblings"]]
    for name in names:
        if (folder / name).exists():
            continue
        with urllib.request.urlopen(
            f"{hub}/{repository}/resolve/main/{name}", timeout=60
        ) as answer:
            with (folder / name).open("wb") as file:
                shutil.copyfileobj(answer, file)
    return AutoTokenizer.from_pretrained(folder)


def marking(repository, cache, *, patience):
    """What loaders do that prune what was used least: at each load a mark is written."""
    made = rankproof(repository, cache, patience=patience)
    Path(cache, "last-used").write_text(repository)
    return made


def elsewhere(repository, cache, *, patience):
    """What scripts with `if os.path.exists(cache)` do: what they cannot look into they fetch for
    themselves.
    """
    if os.path.exists(os.path.join(cache, "by-hand")):
        return by_hand(repository, cache, patience=patience)
    with tempfile.TemporaryDirectory() as own:
        return by_hand(repository, own, patience=patience)


LOADERS = {
    "rankproof": rankproof,
    "transformers": transformers,
    "by-hand": by_hand,
    "marking": marking,
    "elsewhere": elsewhere,
}
