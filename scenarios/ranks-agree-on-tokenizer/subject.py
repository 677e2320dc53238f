"""Every rank loads one repository into a cold cache of its own.

It is compared with the files read offline.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

# Back-off sleeps of the hub's client are multiplied by this: what matters is how they end.
SHORTER = 0.01


def load(context, *, loader, repository, deadline):
    """Entry: tell whether the tokenizer is the reference, another one, or none, with the error.

    Args:
        context: the rank's context.
        loader: `ours`, or `plain`: transformers' AutoTokenizer.
        repository: id of the repository on the hub; the input `repositories` holds its files.
        deadline: seconds that our loader gives the hub.
    """
    from harness.tokenizer import difference, identify
    from harness.tokenizer.loading import load as ours

    context.emit("loader", loader=loader, sleeps_multiplied_by=1 if loader == "ours" else SHORTER)
    reference = ours(Path(context.inputs["repositories"]) / repository).identity
    made, error = None, None
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as cache:
        context.emit("load.begin")
        try:
            if loader == "ours":
                made = ours(repository, cache=cache, deadline=deadline, token=False).tokenizer
            else:
                made = plain(repository, cache)
        except Exception as raised:  # noqa: BLE001 - an error of any kind is not silent
            error = raised
        context.emit("load.end")
    if error is not None:
        told = f"{type(error).__name__}: {error}"[:400]
        context.emit("load", outcome="error", another=False, error=told)
        return
    found = identify(made, depth=reference.depth)
    same = found.semantic == reference.semantic
    context.emit(
        "load",
        outcome="same" if same else "different",
        another=not same,
        tokens=len(made),
        identity=found.semantic,
        reference=reference.semantic,
        ids=made.encode("Hello world"),
        words=[one.words[:200] for one in difference(reference, found)[:3]],
    )


def plain(repository, cache):
    """What most programs call."""
    import huggingface_hub.utils._http as http
    from transformers import AutoTokenizer

    http.time = ShortSleeps(http.time)
    return AutoTokenizer.from_pretrained(repository, cache_dir=cache)


class ShortSleeps:
    """The module `time`, for one module, with shorter sleeps."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        return getattr(self.module, name)

    def sleep(self, seconds):
        self.module.sleep(seconds * SHORTER)
