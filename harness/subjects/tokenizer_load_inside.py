"""Load a tokenizer on every rank, say what it is, and use it."""

from __future__ import annotations

from typing import Any


def load(path: str) -> Any:
    """Return the tokenizer of a folder, as transformers loads it, from the files that are there."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def run(
    context: Any,
    *,
    tokenizer: str = "tokenizer",
    loader: str = "every-rank",
    text: str = "Hello world",
) -> None:
    """Entry: load the input of that name, identify it, compare over the group, encode and
    decode.
    """
    from harness.tokenizer import identify

    context.emit("tokenizer.load.begin")
    # The bug of `rank-0-only`: whoever is not rank 0 goes on without one.
    loaded = (
        load(context.inputs[tokenizer]) if loader == "every-rank" or context.rank == 0 else None
    )
    context.emit("tokenizer.load.end")
    assert loaded is not None
    identity = identify(loaded)
    context.emit(
        "tokenizer",
        **{
            "class": type(loaded).__name__,
            "fast": bool(loaded.is_fast),
            "size": len(loaded),
            "semantic": identity.semantic,
            "full": identity.full,
        },
    )
    if context.backend != "none":
        seen = context.group.all_gather(identity.full.encode())
        context.emit("identities", count=len(seen), distinct=len(set(seen)))
    ids = [int(token) for token in loaded.encode(text)]
    back = loaded.decode(ids, skip_special_tokens=True)
    context.emit("tokenizer.ready", ids=ids, count=len(ids), text=back, returns=back == text)
