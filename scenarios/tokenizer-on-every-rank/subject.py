"""Warm-up of a runner, as in the source report: load a tokenizer, wrap it, assert it is there, use
it.

The fix under test is one condition. `every-rank` is the code after it, `rank-0-only` the code
before it; everything else is the same.
"""

from __future__ import annotations

import hashlib
import json

PROMPT = "Hello world"
WARM_UP_PROMPT = "Warm up, please: the first prompt is never the fast one."
PROBES = (
    "Hello world",
    "  leading spaces",
    "naïve café",
    "日本語のテキスト",
    "שלום",
    "👩‍👩‍👧 ok",
    "x = {'a': 1}\n\n",
    "12345.678",
)


class TokenizerWrapper:
    """What the runner holds: a transformers tokenizer behind two methods."""

    def __init__(self, raw):
        self.raw = raw

    def encode(self, text):
        return self.raw.encode(text)

    def decode(self, ids):
        return self.raw.decode(ids)


def load_tokenizer(path):
    from transformers import AutoTokenizer

    raw = AutoTokenizer.from_pretrained(path, local_files_only=True)
    if raw.pad_token is None:
        raw.pad_token = raw.eos_token
    return TokenizerWrapper(raw)


def warm_up(context, *, loader):
    """Entry: what every rank does before the first request."""
    import_modules(context)
    context.emit("tokenizer.load.begin")
    tokenizer = None
    if loader == "every-rank" or context.rank == 0:
        tokenizer = load_tokenizer(context.inputs["tokenizer"])
        context.emit("tokenizer.load.end")
        digest = identity(tokenizer)
        describe(context, tokenizer, digest)
    assert tokenizer
    context.emit("tokenizer.ready")

    gather_identities(context, digest)
    tokenizer.decode(tokenizer.encode(WARM_UP_PROMPT))
    context.group.barrier()
    context.emit("warm-up.done")

    ids = tokenizer.encode(PROMPT)
    context.emit("encode", text=PROMPT, ids=ids, count=len(ids))
    text = tokenizer.decode(ids)
    context.emit("decode", text=text, sentence=f"{PROMPT!r} -> {len(ids)} tokens -> {text!r}")


def import_modules(context):
    import tokenizers
    import torch
    import transformers

    modules = (torch, transformers, tokenizers)
    context.emit("modules.imported", **{module.__name__: module.__version__ for module in modules})


def describe(context, tokenizer, digest):
    raw = tokenizer.raw
    context.emit(
        "tokenizer",
        **{
            "class": f"{type(tokenizer).__name__}({type(raw).__name__})",
            "backend": "Rust" if raw.is_fast else "Python",
            "vocabulary": len(raw),
            "identity": digest,
        },
    )


def identity(tokenizer):
    """Digest of what the tokenizer does and is: ids of the probes, vocabulary, special tokens,
    template.
    """
    raw = tokenizer.raw
    facts = {
        "class": type(raw).__name__,
        "probes": [tokenizer.encode(probe) for probe in PROBES],
        "vocabulary": sorted(raw.get_vocab().items()),
        "special": {name: str(token) for name, token in sorted(raw.special_tokens_map.items())},
        "template": raw.chat_template,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def gather_identities(context, digest):
    """Exchange the digests over the real backend, so that each rank sees every other's."""
    found = context.group.all_gather(digest.encode())
    context.emit("identities.gathered", count=len(found), distinct=len(set(found)))
