"""Find the tokenizer that belongs to a model file: every candidate, and every reason for or against
it.

A tokenizer may be named, inside the model, beside it, in our cache or in the hub's cache. A
candidate is chosen because what it holds is what the model holds, id by id; never because of a
name, an architecture or a size, which are hints.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from harness.forms.regular_file import read_regular
from harness.forms.text import plural, quoted
from harness.forms.variables import cache_folder
from harness.tokenizer.files import is_there
from harness.tokenizer.formats import gguf_form
from harness.tokenizer.gguf.known import BPE, MODEL, PRE, PRE_TOKENIZERS, SPLITS
from harness.tokenizer.gguf.reader import MAGIC, GgufFile, opened
from harness.tokenizer.gguf.shape import embedding_rows
from harness.tokenizer.gguf.vocabulary import tokenizer as tokenizer_findings
from harness.tokenizer.isolation import ask
from harness.tokenizer.loading.intact import damage, hub_cache, unchanged
from harness.tokenizer.problem import TokenizerError, Unreadable, refused

Origin = Literal["named", "inside", "beside", "above", "cache", "hub's cache"]
# Candidates of one cache that are looked at, the newest first.
MOST_CANDIDATES = 256
_WHOLE = "tokenizer.json"
_ALONE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json")
_NOT_LOADABLE = ("vocab.json", "merges.txt", "special_tokens_map.json", "vocab.txt")


@dataclass(frozen=True, kw_only=True)
class CandidatePlace:
    """A file or folder that may hold the tokenizer.

    Attributes:
        origin: how it was found.
        path: the file; a folder where a tokenizer.json has what belongs to it beside it.
        complaint: why it is not even read; empty where it is.
    """

    origin: Origin
    path: Path
    complaint: str = ""


def places(
    model: Path, *, named: Path | None = None, caches: list[Path] | None = None
) -> list[CandidatePlace]:
    """Every place, in the order of trust: what is named is the only one asked where it is given.

    Args:
        model: the model file.
        named: the tokenizer that the user names.
        caches: folders of either layout; None: ours and the hub's, as the environment names them.
    """
    if named is not None:
        return [CandidatePlace(origin="named", path=named)]
    candidates = [CandidatePlace(origin="inside", path=model)]
    candidates += _of_folder(model.parent, "beside", stem=model.stem)
    above = model.absolute().parent.parent
    if above != model.absolute().parent:
        candidates += _of_folder(above, "above")
    if caches is None:
        candidates += _of_cache(
            cache_folder("tokenizers", variable="RANKPROOF_TOKENIZERS"), "cache"
        )
        candidates += _of_cache(hub_cache(), "hub's cache")
    else:
        for root in caches:
            candidates += _of_cache(root, "hub's cache" if any(root.glob("models--*")) else "cache")
    by_file: dict[str, CandidatePlace] = {}
    for place in candidates:
        by_file.setdefault(os.path.realpath(place.path), place)
    return list(by_file.values())


def _of_folder(
    folder: Path, origin: Origin, *, stem: str | None = None
) -> Iterator[CandidatePlace]:
    if stem is not None:
        for name in (f"{stem}.tokenizer.json", f"{stem}.tokenizer.model"):
            if is_there(folder / name):
                yield CandidatePlace(origin=origin, path=folder / name)
    if is_there(folder / _WHOLE):
        yield CandidatePlace(origin=origin, path=folder)
    names = [name for name in _ALONE if is_there(folder / name)]
    yield from (CandidatePlace(origin=origin, path=folder / name) for name in names)
    try:
        ranked = sorted(folder.glob("*.tiktoken"))
    except OSError:
        ranked = []
    yield from (CandidatePlace(origin=origin, path=file) for file in ranked)
    if not (names or ranked or is_there(folder / _WHOLE)):
        for name in _NOT_LOADABLE:
            if is_there(folder / name):
                yield CandidatePlace(
                    origin=origin,
                    path=folder / name,
                    complaint=(
                        "is only a part of a tokenizer; a transformers class decides which ids it"
                        " produces"
                    ),
                )


def _of_cache(root: Path, origin: Origin) -> Iterator[CandidatePlace]:
    """Snapshots of a cache, the newest first: `REPOSITORY/COMMIT/files`, or the hub's
    `models--…/snapshots/COMMIT`.
    """
    levels = ("models--*", "snapshots", "*") if origin == "hub's cache" else ("*", "*", "files")
    folders = [root]
    dated = []
    for level in levels:
        below: list[Path] = []
        for folder in folders:
            try:
                inside = list(folder.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                yield CandidatePlace(
                    origin=origin, path=folder, complaint=f"cannot be read: {error.strerror}"
                )
                continue
            # A dot in front marks what is put aside, locked or half fetched: no snapshot is in
            # there.
            below += (
                path
                for path in inside
                if fnmatch(path.name, level) and not path.name.startswith(".")
            )
        folders = below
    for folder in folders:
        with suppress(OSError):  # gone meanwhile, or a link to nothing
            dated.append((-folder.stat().st_mtime_ns, str(folder), folder))
    real = Path(os.path.realpath(root))
    for _, _, folder in sorted(dated)[:MOST_CANDIDATES]:
        try:
            candidates = list(_of_folder(folder, origin))
        except OSError as error:
            yield CandidatePlace(
                origin=origin, path=folder, complaint=f"cannot be read: {error.strerror}"
            )
            continue
        for place in candidates:
            file = place.path / _WHOLE if place.path == folder else place.path
            if not Path(os.path.realpath(file)).is_relative_to(real):
                yield CandidatePlace(
                    origin=origin,
                    path=file,
                    complaint=f"is a link to a path outside the cache, {os.path.realpath(file)}",
                )
            else:
                yield place


Standing = Literal["same", "usable", "undecided", "differs", "refused"]
# How many ids the best known families have. A size is shared by many tokenizers that have nothing
# else in common.
_HINTS = {
    (
        "llama",
        32_000,
    ): "Llama 2, Mistral 7B, TinyLlama, Vicuna and dozens more, which differ from each other",
    ("llama", 128_256): "Llama 3, 3.1, 3.2 and 3.3",
    ("gpt2", 50_257): "GPT-2",
    ("qwen2", 151_936): "Qwen 1.5, 2 and 2.5",
    ("gemma2", 256_000): "Gemma 2",
    ("bitnet", 32_000): "BitNet models with the tokenizer of Llama 2",
    ("bitnet-b1.58", 128_256): "BitNet models with the tokenizer of Llama 3",
}
_ORIGIN = re.compile(r"general\.(source\.url|(source\.|base_model\.\d+\.)?repo_url)")
# Parts that may differ while every text gets the same ids: said, and not held against a candidate.
_BESIDE_THE_POINT = {"chat templates"}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A place, and what was found there.

    Attributes:
        origin, path: as in `CandidatePlace`.
        standing: `same`: proven to be the model's own; `usable`: the model's own tokenizer, with
            nothing wrong in it; `undecided`: what it says agrees, and it does not say all;
            `differs`; `refused`: not read, or not to be used.
        reasons: for or against it, the most important first.
        fingerprint: of its form, 64 hex digits, where it could be read.
        read: sha256 of each file that was compared, by its path: whoever uses the candidate uses
            these bytes.
    """

    origin: Origin
    path: Path
    standing: Standing
    reasons: tuple[str, ...]
    fingerprint: str | None = None
    read: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The answer.

    Attributes:
        model: the model file.
        fingerprint: of the tokenizer inside, if there is one.
        chosen: the candidate to use; None where there is none.
        proven: whether the chosen one is another file whose content is that of the one inside.
        candidates: all of them, in the order in which they were asked.
        hints: what may help to find one; none of it proves anything.
    """

    model: Path
    fingerprint: str | None
    chosen: Candidate | None
    proven: bool
    candidates: tuple[Candidate, ...]
    hints: tuple[str, ...]

    @property
    def reasons(self) -> list[str]:
        """Every reason for or against a candidate, in their order."""
        return [reason for candidate in self.candidates for reason in candidate.reasons]


def resolve(
    model: Path,
    *,
    tokenizer: Path | None = None,
    caches: Sequence[Path] | None = None,
    strict: bool = False,
) -> Resolution:
    """Find the tokenizer of a model.

    Args:
        model: a GGUF file.
        tokenizer: the only candidate; it is held against the one inside like any other.
        caches: folders that hold snapshots; None: ours, and huggingface_hub's.
        strict: choose only what is proven.

    Returns:
        The resolution. Without a proven candidate the tokenizer inside is chosen if nothing is
        wrong with it, but not under `strict`.

    Raises:
        Unreadable: the model cannot be read.
    """
    if (said := damage(model)) is not None:
        raise Unreadable(f"{model}: {said}")
    with opened(model) as file:
        rows = embedding_rows(file)
        hints = _hints(file)
        inside = _inside(file)
    candidates = [
        inside if place.origin == "inside" else _candidate(model, place, inside=inside, rows=rows)
        for place in places(model, named=tokenizer, caches=None if caches is None else list(caches))
    ]
    chosen = next((candidate for candidate in candidates if candidate.standing == "same"), None)
    proven = chosen is not None
    if chosen is None and not strict:
        chosen = next(
            (candidate for candidate in candidates if candidate.standing == "usable"), None
        )
    return Resolution(
        model=model,
        fingerprint=inside.fingerprint,
        chosen=chosen,
        proven=proven,
        candidates=tuple(candidates),
        hints=hints,
    )


def admit(path: Path) -> None:
    """Refuse a tokenizer that `resolve` would refuse, whatever an engine makes of it.

    Args:
        path: a file or folder of any format; of a GGUF file the tokenizer inside.

    Raises:
        Unreadable: damaged, not a tokenizer, or one whose ids would be a guess.
    """
    if (said := damage(path)) is not None:
        raise Unreadable(f"{path}: {said}")
    if path.is_dir() or not _is_gguf(path):
        ask("form", [path])
        return
    with opened(path) as file:
        inside = _inside(file)
    if inside.standing == "refused":
        raise Unreadable(f"{path}: {inside.reasons[0]}")


def _is_gguf(path: Path) -> bool:
    try:
        return path.suffix == ".gguf" or read_regular(path, limit=4, cut=True) == MAGIC
    except OSError as error:
        raise refused(path, error) from None


def _inside(file: GgufFile) -> Candidate:
    """Return the tokenizer in the model: usable where an engine that reads GGUF files makes no
    guess about it.
    """
    path = Path(file.path)
    try:
        form = gguf_form(file)
    except TokenizerError as error:
        return Candidate(
            origin="inside", path=path, standing="refused", reasons=(_without(str(error), path),)
        )
    pre = file.value(PRE)
    if file.value(MODEL) == BPE.encode() and (
        not isinstance(pre, bytes) or pre.decode(errors="replace") not in PRE_TOKENIZERS
    ):
        named = quoted(pre.decode(errors="replace")) if isinstance(pre, bytes) else "none"
        return Candidate(
            origin="inside",
            path=path,
            standing="refused",
            reasons=(
                (
                    f"it uses the unknown pre-tokenizer {named}, so we do not know how text is"
                    " split and do not guess"
                ),
            ),
            fingerprint=form.fingerprint,
        )
    findings = list(tokenizer_findings(file))
    errors = [
        f"{finding.where} {finding.message}" for finding in findings if finding.severity == "error"
    ]
    warnings = [
        f"warning: {finding.where} {finding.message}"
        for finding in findings
        if finding.severity == "warning"
    ]
    known = (
        "no errors were found in the model" if warnings else "no problems were found in the model"
    )
    usable = f"{plural(form.size, 'id')}, {known}; engines that read GGUF files can use it"
    if (
        isinstance(pre, bytes)
        and file.value(MODEL) == BPE.encode()
        and pre.decode(errors="replace") in SPLITS
    ):
        usable += ", and `tokenizer infer --tokenizer inside`"
    reasons = tuple(errors) if errors else (usable, *warnings)
    standing: Standing = "refused" if errors else "usable"
    return Candidate(
        origin="inside", path=path, standing=standing, reasons=reasons, fingerprint=form.fingerprint
    )


def _candidate(
    model: Path, place: CandidatePlace, *, inside: Candidate, rows: int | None
) -> Candidate:
    if place.complaint:
        return Candidate(
            origin=place.origin, path=place.path, standing="refused", reasons=(place.complaint,)
        )
    try:
        with unchanged(place.path):
            if inside.fingerprint is None:
                answer = ask("form", [place.path])
            else:
                answer = ask("form against", [model, place.path])
    except Unreadable as error:
        if place.origin == "named":
            raise
        return Candidate(
            origin=place.origin,
            path=place.path,
            standing="refused",
            reasons=(_without(str(error), place.path),),
        )
    standing, reasons = _judged(answer, rows=rows, held_against=inside.fingerprint is not None)
    return Candidate(
        origin=place.origin,
        path=place.path,
        standing=standing,
        reasons=reasons,
        fingerprint=answer["fingerprint"],
        read=answer["read"],
    )


def _judged(
    answer: dict[str, Any], *, rows: int | None, held_against: bool
) -> tuple[Standing, tuple[str, ...]]:
    if rows is not None and answer["size"] > rows:
        return "differs", (
            (
                f"it has {answer['size']} ids, but the model has only {rows} rows, so the last ids"
                " have no row"
            ),
        )
    if not held_against:
        return "undecided", (
            "the model contains no tokenizer to compare it with, so a matching size is not proof",
        )
    rows_of = {
        sort: [
            row["words"]
            for row in answer["rows"]
            if row["sort"] == sort and row["part"] not in _BESIDE_THE_POINT
        ]
        for sort in ("difference", "undecided", "remark")
    }
    notes = [
        row["words"]
        for row in answer["rows"]
        if row["part"] in _BESIDE_THE_POINT and row["sort"] != "remark"
    ]
    if rows_of["difference"]:
        return "differs", tuple(rows_of["difference"])
    if rows_of["undecided"]:
        return "undecided", (
            *rows_of["undecided"],
            (
                "everything that the file states agrees; run `rankproof tokenizer parity` to test the"
                " rest"
            ),
        )
    return "same", (
        f"all {answer['size']} ids, their types and their order are the same as the model's",
        *notes,
    )


def _hints(file: GgufFile) -> tuple[str, ...]:
    """Hints at where the tokenizer is: the model's stated origin, its architecture and its size."""
    hints = [
        f"{key.name} is {quoted(key.value.decode(errors='backslashreplace'))}; look there"
        for key in file.keys.values()
        if _ORIGIN.fullmatch(key.name) and isinstance(key.value, bytes)
    ]
    architecture = file.value("general.architecture")
    rows = embedding_rows(file)
    if isinstance(architecture, bytes) and rows is not None:
        name = architecture.decode(errors="backslashreplace")
        if (likely := _HINTS.get((name, rows))) is not None:
            hints.append(
                f"architecture {name} with {rows} rows suggests {likely} (a hint, not proof)"
            )
    return tuple(hints)


def _without(message: str, path: Path) -> str:
    """Return a message without the path in front, which stands beside it."""
    return message.removeprefix(f"{path}: ")
