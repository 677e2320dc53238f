"""Whether a model file and its tokenizer are well: found, proven, loaded, and asked to give texts back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.forms.text import plural
from harness.tokenizer.engines import Engine, EngineFailed
from harness.tokenizer.folder import identify_folder
from harness.tokenizer.gguf import GgufFile, check
from harness.tokenizer.gguf.reader import Malformed
from harness.tokenizer.loading.intact import unchanged
from harness.tokenizer.problem import TokenizerError
from harness.tokenizer.resolution import resolve


@dataclass(frozen=True, kw_only=True)
class Health:
    """What was found.

    Attributes:
        model: the GGUF file.
        word: `well`: its tokenizer, proven to be its own or inside it, was loaded, and kept the texts it can spell;
            `ill`; `not tried`: nothing is wrong, and no engine here loads it.
        tokenizer: what was loaded, or what no engine here loads.
        said: what was found, in words.
    """

    model: Path
    word: Literal["well", "ill", "not tried"]
    tokenizer: Path | None
    said: tuple[str, ...]


def health(model: Path, *, tokenizer: Path | None = None) -> Health:
    """Look at a model file, and at its tokenizer, in processes with limits where they are loaded.

    Args:
        model: a GGUF file.
        tokenizer: a file or folder that has to be its tokenizer; default: it is looked for.
    """
    try:
        with GgufFile(model) as file:
            wrong = [f"{one.where}: {one.message}" for one in check(file) if one.severity == "error"]
        if wrong:
            return Health(model=model, word="ill", tokenizer=None, said=tuple(wrong))
        found = resolve(model, tokenizer=tokenizer)
        if found.chosen is None:
            said = tuple(f"{one.origin} {one.path}: {one.standing}: {one.reasons[0]}" for one in found.candidates)
            return Health(model=model, word="ill", tokenizer=None, said=("no tokenizer of it was found", *said))
        proof = found.chosen.reasons[0] if found.proven else "only the tokenizer inside is there"
        place = found.chosen.path
        kept = None
        if found.proven:
            with unchanged(place):
                kept = identify_folder(place).parts.get("round trip")
        if kept is None:
            try:
                engine = Engine(str(place))
            except EngineFailed as error:
                return Health(model=model, word="not tried", tokenizer=place, said=(proof, str(error)))
            with engine:
                proof, kept = f"{proof}; loaded by {engine.about}", engine.round_trip()
    except (Malformed, TokenizerError) as error:
        return Health(model=model, word="ill", tokenizer=None, said=(str(error),))
    except OSError as error:
        return Health(model=model, word="ill", tokenizer=None, said=(f"cannot be read: {error.strerror}",))
    return _judged(model, place, proof, kept)


def _judged(model: Path, place: Path, proof: str, round_trip: str) -> Health:
    """Texts that vanish show a vocabulary that is not there; others may change, as where case is not kept."""
    counts = json.loads(round_trip)
    kept, changed, lost = (int(counts[name]) for name in ("kept", "changed", "lost"))
    said = f"of {plural(kept + changed + lost, 'text')} there and back {kept} are kept, {changed} changed, {lost} lost"
    return Health(model=model, word="ill" if lost or not kept else "well", tokenizer=place, said=(proof, said))
