"""Engines that turn text into ids, each in a process of its own with limits: what they do, and not
what files say.

* `engine_of(where)`: which engine runs a file, a folder or a server's address; or why none can
  here.
* `Engine(where)`: the running one; `encode` gives ids, or the error in words, text by text.

A text is encoded in a mode: `plain` (special tokens in it are text), `special` (they are tokens),
`around` (as `special`, with what is put around every text).
"""

from __future__ import annotations

from harness.tokenizer.engines.engine import Engine, EngineFailed, engine_of

__all__ = ["Engine", "EngineFailed", "engine_of"]
