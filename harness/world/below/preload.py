"""Modules that a warm server holds before it forks, so that no rank pays for them: torch,
transformers, one tokenizer load.

`from_pretrained` imports some 900 modules lazily, a second of CPU in every rank otherwise. A server
whose ranks need none of it is ready in a tenth of the time.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.rank.inside import load
from harness.rank.lifecycle import seed
from harness.rank.loaded import take_stock

MODULES = (
    "numpy",
    "numpy.random",
    "torch",
    "torch.distributed",
    "tokenizers",
    "transformers",
    "mlx.core",
)
# What loading a model of transformers imports lazily: two seconds of CPU in every rank otherwise.
OF_MODELS = (
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.distributed.tensor_parallel",
)
# What a warm rank finds loaded, and what a subject may bring a copy of its own of.
PACKAGES = frozenset(
    {"harness", "huggingface_hub", "safetensors", *(name.partition(".")[0] for name in MODULES)}
)


LIST = "preload.json"
HUGE_PAGE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
MADV_COLLAPSE = 25


@dataclass(frozen=True, order=True)
class Preload:
    """Modules and files that a warm server is to hold.

    Attributes:
        modules: what is imported: of `MODULES` and `OF_MODELS`, and what a scenario asks for.
        files: of kinds, that ranks load by their path.
    """

    modules: tuple[str, ...] = MODULES
    files: tuple[Path, ...] = ()


EVERYTHING = Preload()


def preload(scratch: str) -> list[str]:
    """Import what is installed of the list in `scratch`, load one tokenizer from a folder there.

    Return what is there.

    The list is JSON: `modules`, and `files` with their paths.
    """
    wanted = json.loads(Path(scratch, LIST).read_text())
    present: list[str] = []
    for name in wanted["modules"]:
        # An arm's own environment may hold any version: what it raises here, it raises in the rank
        # that imports it.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
            present.append(name)
    if "transformers" in present:
        with contextlib.suppress(Exception):
            _load_a_tokenizer(scratch)
    for path in wanted["files"]:
        # A plug-in's: the rank that needs it hears what it raises.
        with contextlib.suppress(Exception):
            load(path)
    # What seeding imports and makes at its first call costs every rank 14 ms otherwise. Ranks seed
    # themselves again.
    seed(0)
    take_stock()
    # Exit handlers of what is loaded here belong to the server: a rank runs those that are
    # registered in the rank.
    atexit._clear()  # noqa: SLF001 - nothing public does it, and unregister needs the functions
    # Objects made so far never die: keep the collector from touching (and so copying) their pages
    # in every rank.
    gc.collect()
    gc.freeze()
    _use_huge_pages()
    return present


def _use_huge_pages() -> None:
    """Move what this process holds to huge pages, where Linux does so on demand (from 6.1 on).

    A fork copies one entry for each instead of 512, and what a rank writes to is still copied by
    small pages. Measured: worlds of 4 ranks met after 75 ms instead of 99 ms, of 64 after 1.85 s
    instead of 2.08 s.
    """
    with contextlib.suppress(OSError, ValueError):  # another system
        size = int(HUGE_PAGE.read_text())
        madvise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights, _, _, inode, *_ = line.split()
            begin, end = (int(text, 16) for text in place.split("-"))
            begin = -(-begin // size) * size
            end = end // size * size
            if rights.startswith("rw") and inode == "0" and begin < end:
                madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_COLLAPSE)


def _load_a_tokenizer(scratch: str) -> None:
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    smallest = Tokenizer(models.BPE({"a": 0}, []))
    smallest.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    smallest.decoder = decoders.ByteLevel()
    with tempfile.TemporaryDirectory(prefix="preload-", dir=scratch) as folder:
        smallest.save(f"{folder}/tokenizer.json")
        Path(folder, "tokenizer_config.json").write_text(
            '{"tokenizer_class": "PreTrainedTokenizerFast"}'
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        tokenizer.decode(tokenizer.encode("a"))
