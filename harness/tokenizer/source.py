"""The source of a function, as a digest."""

from __future__ import annotations

import inspect

from harness.tokenizer.digest import digest_text


def source_of(function: object) -> str:
    """Digest of a function's source; what is known of it where there is none."""
    try:
        return digest_text(inspect.getsource(inspect.unwrap(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError):
        return f"no source: {type(function).__qualname__}"
