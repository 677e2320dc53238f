"""Model files in the GGUF format: their metadata, read within bounds, and what is wrong with it.

* `GgufFile(path)`: the keys, arrays and tensors of a file, by offset; no array is held in memory.
* `check(file)`: what an engine would refuse, guess or get wrong, as findings with key, offset and
  remedy.

Standard library only, but for chat templates, which are compiled by jinja2 in a process of their
own. The format is ggml's, and its names are used here: a key has a value, a tensor has dimensions
and a type.
"""

from __future__ import annotations

from harness.tokenizer.gguf.check import check
from harness.tokenizer.gguf.reader import Array, GgufFile, Key, Malformed, Tensor
from harness.tokenizer.gguf.shape import Finding

__all__ = ["Array", "Finding", "GgufFile", "Key", "Malformed", "Tensor", "check"]
