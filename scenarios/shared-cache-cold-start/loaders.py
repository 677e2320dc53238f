# ruff: noqa: ARG001, S310, SIM117
"""Three ways to get a tokenizer into a folder that other processes share, and from it."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from pathlib import Path


def rankproof(repository, cache, *, patience):
    """Our loader; it waits for another process for a fifth of the patience, then says for whom."""
    from harness.tokenizer.loading import load

    return load(repository, cache=cache, deadline=10 * patience, lock_timeout=patience / 5).tokenizer


def transformers(repository, cache, *, patience):
    """What everybody does: the hub's own cache, shared by all processes."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(repository, cache_dir=cache)


def by_hand(repository, cache, *, patience):
    """What scripts around `wget -nc` or `requests` do: each file straight to its name, unless something lies there."""
    from transformers import AutoTokenizer

    folder, hub = Path(cache, "by-hand"), os.environ["HF_ENDPOINT"]
    folder.mkdir(exist_ok=True)
    with urllib.request.urlopen(f"{hub}/api/models/{repository}", timeout=60) as answer:
        names = [file["rfilename"] for file in json.load(answer)["siblings"]]
    for name in names:
        if (folder / name).exists():
            continue
        with urllib.request.urlopen(f"{hub}/{repository}/resolve/main/{name}", timeout=60) as answer:
            with (folder / name).open("wb") as file:
                shutil.copyfileobj(answer, file)
    return AutoTokenizer.from_pretrained(folder)


LOADERS = {"rankproof": rankproof, "transformers": transformers, "by-hand": by_hand}
