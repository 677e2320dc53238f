"""The identity of what was read from files."""

from __future__ import annotations

from typing import Any

from harness.tokenizer.backend import encoder_parts, read, view
from harness.tokenizer.digest import short
from harness.tokenizer.identity import Identity
from harness.tokenizer.names import name_parts
from harness.tokenizer.objects import alone_parts, deep_parts
from harness.tokenizer.repository import Repository
from harness.tokenizer.transformers_parts import SETTINGS


def identify_repository(found: Repository) -> Identity:
    """The full identity of a tokenizer.json or a folder."""
    backend = found.backend
    if found.alone:
        return Identity.of(alone_parts(backend, depth="full") | {"kind": "tokenizer.json"}, depth="full")
    parts = {"scope": "tokenizer", "kind": "files", "class": short(found.config.get("tokenizer_class"))}
    special = bool(backend.encode_special_tokens)
    parts |= encoder_parts(backend, read(backend), alone=False, encode_special_tokens=special)
    parts |= name_parts(found.named, found.extra, found.templates or None, token_to_id=backend.token_to_id)
    parts |= {name: short(found.config.get(name)) for name in SETTINGS}
    parts["settings"] = short(_settings(found.config))
    parts |= deep_parts(view(backend), backend.get_vocab())
    return Identity.of(parts, depth="full")


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """What tokenizer_config.json holds beside what other parts say."""
    elsewhere = {"chat_template", "added_tokens_decoder", "tokenizer_class", *SETTINGS}
    return {name: value for name, value in config.items() if name not in elsewhere}
