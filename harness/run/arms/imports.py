"""What the code of a scenario's arms imports, as far as its text tells: what a warm server is worth
holding.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from harness.backends import Backend
from harness.faults import Fault
from harness.world.below.preload import EVERYTHING, MODULES, OF_MODELS, Preload

# What each word in the code asks for. A tokenizer is loaded with whatever its library finds there.
OF_TORCH = ("numpy", "numpy.random", "torch", "torch.distributed")
ASKED_BY = {
    "numpy": ("numpy", "numpy.random"),
    "torch": OF_TORCH,
    "mlx": ("numpy", "numpy.random", "mlx.core"),
    "tokenizers": MODULES,
    "transformers": MODULES,
}
# The same for whatever loads models, further code or none.
OF_A_MODEL = re.compile(rb"\bAutoModelForCausalLM\b")
MOST_BYTES = 4 * 2**20


def preload(
    folders: Iterable[Path],
    *,
    own: Collection[str],
    backends: Iterable[Backend],
    faults: Iterable[Fault],
    environments: bool = False,
) -> Preload:
    """What a warm server holds for ranks of these arms: the same for both, or the two could not be
    compared.

    Code that imports nothing but the standard library, itself and what we know asks for what it
    names; any other import may bring anything, and a name that is made as it runs is still a word
    of the text.

    Args:
        folders: the code of the arms.
        own: the modules and packages at the top of it.
        backends: those of the scenario's cells.
        faults: the scenario's.
        environments: whether an arm has an environment of its own, where other packages may be
            installed than here.
    """
    backends = list(backends)
    folders = list(folders)
    files = {backend.inside_file for backend in backends}
    files |= {fault.inside_file for fault in faults if fault.inside_file is not None}
    words = {
        module.partition(".")[0] for backend in backends for module in backend.properties.modules
    }
    modules: Collection[str]
    if (
        named := _named(folders, own=own, environments=environments)
    ) is None or words - ASKED_BY.keys():
        modules = EVERYTHING.modules
    else:
        modules = {module for word in words | named for module in ASKED_BY[word]}
    wanted = [name for name in MODULES if name in modules]
    if "transformers" in wanted and any(
        OF_A_MODEL.search(file.read_bytes()) for file in _files(folders)
    ):
        wanted += OF_MODELS
    return Preload(modules=tuple(wanted), files=tuple(sorted(files)))


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    return (file for folder in folders for file in sorted(folder.rglob("*.py")))


def _named(folders: Iterable[Path], *, own: Collection[str], environments: bool) -> set[str] | None:
    """Which of the known libraries the code names; None where it may import others, or is too much
    to read.
    """
    known = {*ASKED_BY, *own, *sys.stdlib_module_names}
    found = set()
    size = 0
    for file in _files(folders):
        text = file.read_bytes()
        size += len(text)
        strangers = _imports(text) - known
        if size > MOST_BYTES or any(environments or _is_installed(name) for name in strangers):
            return None
        found |= {word for word in ASKED_BY if re.search(rb"\b%s\b" % word.encode(), text)}
    return found


def _is_installed(name: str) -> bool:
    """Whether a package is here that could bring others.

    What is not raises in the rank, as it did.
    """
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True


def _imports(text: bytes) -> set[str]:
    """The top-level packages that a file imports by statements.

    A file that is not Python imports none.
    """
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return {name.partition(".")[0] for name in names}
