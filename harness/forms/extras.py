"""The extras of this distribution: whoever lacks a library hears which extra brings it.

Standard library only, because backends import it inside ranks.
"""

from __future__ import annotations

import importlib.util

# Each library that is imported from an extra, with that extra: a test keeps them equal to
# pyproject.toml.
EXTRAS = {
    "huggingface_hub": "tokenizer",
    "jinja2": "tokenizer",
    "mlx": "mlx",
    "mlx_lm": "mlx",
    "numpy": "numeric",
    "sentencepiece": "tokenizer",
    "tokenizers": "tokenizer",
    "torch": "torch",
    "transformers": "tokenizer",
    "xxhash": "torch",
}


def absence(library: str) -> str:
    """The sentence about a library that is not here: `torch is not installed here: pip install
    'rankproof[torch]'`.
    """
    return f"{library} is not installed here: pip install 'rankproof[{EXTRAS[library]}]'"


def missing(*libraries: str) -> str | None:
    """The sentence about the first of these libraries that is not here, without importing any; None
    if all are.
    """
    return next(
        (absence(name) for name in libraries if importlib.util.find_spec(name) is None), None
    )
