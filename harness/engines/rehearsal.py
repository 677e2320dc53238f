"""Rehearsals: an engine takes a checkpoint before anything runs, the rank's own code on arrays
without numbers.

What a library's files say of an architecture (`harness.engines.offers`) does not say whether a
checkpoint has the tensors, by name and shape, that the library's class for it makes of this
config.json, nor whether a first step goes through. A process of its own imports the engine, loads
the headers and takes a step; what it finds is cached by all that it depends on. A process that
fails to find out refuses nothing: the rank will say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.engines.inference_inside import checkpoint
from harness.engines.inference_inside.rehearsal import IN_CHUNKS, Complaint, RehearsedQuestion
from harness.engines.models import MODELS, config_of
from harness.forms.digest import fold, sha256, sha256_of
from harness.forms.variables import cache_folder

INSIDE = Path(__file__).with_name("inference_inside")
VARIABLE = "RANKPROOF_REHEARSALS"
LIBRARIES = {"hf": ("transformers", "torch"), "mlx": ("mlx-lm", "mlx", "transformers")}
LIMIT = 600.0
"""Seconds by the clock. The process has a limit of its own to the time that it computes."""
SIZES = (2, 3, 4)
"""World sizes that are rehearsed together, for they are asked together."""
CALL = (
    "import sys; sys.path.insert(0, sys.argv[1]); from inference_inside.rehearsal import main;"
    " main()"
)


def refusal(engine: str, folder: Path, *, ranks: int, dtype: str, chunked: bool = False) -> str:
    """Return why an engine cannot run the model of a folder, as a reason to skip.

    Empty where nothing is known.

    With `chunked` it is to read prompts in chunks.

    A model that is made here is not rehearsed: the tests run each, on every engine that offers it.

    Raises:
        ValueError: as `checkpoint.stored`.
    """
    if _is_made(folder):
        return ""
    library = engine.partition("-")[0]
    why = complaint(engine, folder, ranks=ranks, dtype=dtype)
    if why:
        return f"{why}; use another engine, or a checkpoint that {LIBRARIES[library][0]} can load"
    return in_chunks(folder, dtype=dtype) if chunked and library == "hf" else ""


def _is_made(folder: Path) -> bool:
    """Return whether a model has the configuration and the tensors of one that is made here."""
    config = config_of(folder)
    recipe = next((recipe for recipe in MODELS.values() if recipe.config() == config), None)
    return recipe is not None and checkpoint.shapes(str(folder)) == {
        name: tensor.shape for name, tensor in recipe.tensors().items()
    }


def complaint(engine: str, folder: Path, *, ranks: int, dtype: str) -> str:
    """Return what is raised of a model before an engine has generated a token, and whose it is.

    Empty where nothing is known.

    Args:
        engine: of `harness.engines.offers.ENGINES`, one that has the architecture and can split it.
        folder: with config.json and safetensors files, which `checkpoint.stored` takes.
        ranks: world size.
        dtype: of the weights.

    Raises:
        ValueError: as `checkpoint.stored`.
    """
    if engine == "hf-tensor" and ranks == 1:
        engine = "hf-single"
    if engine.endswith("-single"):
        ranks = 1
    sizes = SIZES if ranks in SIZES else (ranks,)
    return _known(engine, folder, str(ranks), dtype=dtype, sizes=sizes)


def in_chunks(folder: Path, *, dtype: str) -> str:
    """Return why a prompt in chunks is another one to a model of transformers than the whole
    prompt.

    Empty where it is not.
    """
    return _known("hf-single", folder, IN_CHUNKS, dtype=dtype, sizes=(1,))


def _known(engine: str, folder: Path, what: str, *, dtype: str, sizes: tuple[int, ...]) -> str:
    """Return what is found of a world size, or of chunks, now or before."""
    key = fold(
        {"engine": engine, "dtype": dtype, **_files(folder), **_code(engine.partition("-")[0])}
    )
    place = cache_folder("rehearsals", variable=VARIABLE) / f"{key}.json"
    sentences = _read(place)
    # Whoever rehearsed the whole model asked of chunks too, where there is an answer.
    if what not in sentences and not (what == IN_CHUNKS and sentences):
        rehearsed = _rehearsed(engine, folder, dtype=dtype, sizes=sizes)
        if rehearsed:
            sentences |= rehearsed
            _write(place, sentences)
    return sentences.get(what, "")


def _files(folder: Path) -> dict[str, str]:
    """Return what of a folder decides how it is loaded: small files by content, tensors by name,
    dtype and shape.
    """
    small = {path.name: sha256_of(path) for path in sorted(folder.glob("*.json"))}
    tensors = {
        name: [tensor.dtype, *tensor.shape]
        for name, tensor in checkpoint.stored(str(folder)).items()
    }
    return {**small, "tensors": sha256(json.dumps(tensors, sort_keys=True).encode())}


@cache
def _code(library: str) -> dict[str, str]:
    """Return the code that is rehearsed, and the releases of its libraries."""
    code = {f"code/{path.name}": sha256_of(path) for path in sorted(INSIDE.glob("*.py"))}
    return (
        code
        | {f"release/{name}": _release(name) for name in LIBRARIES[library]}
        | {"python": sys.version}
    )


def _release(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _rehearsed(engine: str, folder: Path, *, dtype: str, sizes: tuple[int, ...]) -> dict[str, str]:
    """Return for each world size what is raised, or nothing; empty where the process ended without
    an answer.
    """
    question = RehearsedQuestion(
        engine=engine, folder=str(folder.absolute()), dtype=dtype, sizes=sizes
    )
    try:
        return {
            what: _sentence(engine, what, Complaint(*answer)) if answer else ""
            for what, answer in json.loads(ask(json.dumps(question))).items()
        }
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return {}


def ask(question: str) -> str:
    """Return what a process of its own finds: the last line that it prints.

    Raises:
        OSError, SubprocessError: it cannot be started, or ended otherwise than with an answer.
    """
    # Nothing is fetched, nothing is asked of a terminal, and no device but the CPU is taken.
    quiet = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-P", "-c", CALL, str(INSIDE.parent)],
        input=question,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
        env=os.environ | quiet,
    )
    return done.stdout.rpartition("\n")[0].rpartition("\n")[2]


def _sentence(engine: str, what: str, complaint: Complaint) -> str:
    """Return who cannot do it, and why: a library, or what is made of it here."""
    library = LIBRARIES[engine.partition("-")[0]][0]
    called = f"{library} {_release(library)}"
    if what == IN_CHUNKS:
        return (
            f"the hf engines refuse to read prompts of this model in chunks with {called} (tested"
            f" without weights): {complaint.why}"
        )
    who = f"{engine} refuses" if complaint.is_ours else f"{called} fails on"
    return f"{who} this model (tested without weights): {complaint.why}"


def _read(place: Path) -> dict[str, str]:
    try:
        sentences = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(sentences, dict):
        return {}
    return {str(size): str(why) for size, why in sentences.items()}


def _write(place: Path, sentences: dict[str, str]) -> None:
    """Keep it for the next time; a cache that cannot be written costs that time alone."""
    try:
        # Beside it and moved: whoever reads it meanwhile has the old file or the new one.
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as file:
            json.dump(sentences, file)
        Path(file.name).replace(place)
    except OSError:
        return
