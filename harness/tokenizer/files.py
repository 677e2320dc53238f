"""Tokenizer files, as transformers would make a tokenizer of them, without transformers.

Followed here: what `TokenizersBackend` does with `tokenizer.json`, `tokenizer_config.json`,
`special_tokens_map.json`, `added_tokens.json` and the chat templates (transformers 5.23). A class
of its own (`tokenizer_class`) may build something else from the same files; then the object's
identity differs from the folder's, and says in what.

Nobody vouches for these files: they are read with limits, in the child process. The tokenizers
library takes files in which ids are not unique, and decides by itself: of two tokens with one id
the last decodes, an added token whose id is taken silently gets another one, and an id of 2^32 - 1
is past every embedding. Here such files are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.forms.digest import sha256
from harness.forms.regular_file import read_regular
from harness.forms.strict_json import NotStrict, strict_json
from harness.forms.text import quoted
from harness.tokenizer.backend import encoder_parts, read, view
from harness.tokenizer.identity import Identity, short
from harness.tokenizer.objects import alone_parts, deep_parts
from harness.tokenizer.problem import Absent, Unreadable, first_line, panics_become, refused
from harness.tokenizer.transformers_object import SETTINGS, name_parts

# Ids from here on belong to no model: the largest vocabularies have a million tokens.
LARGEST_ID = 1 << 24


def check_ids(path: Path, raw: dict[str, Any]) -> None:
    """Refuse ids that no tokenizer means.

    Args:
        path: for the message.
        raw: the content of the tokenizer.json, which the tokenizers library has taken.

    Raises:
        Unreadable: with the tokens and the id.
    """
    vocabulary = raw["model"].get("vocab")
    by_id: dict[int, str] = {}
    if isinstance(vocabulary, dict):
        for token, index in vocabulary.items():
            _in_range(path, token, index)
            if index in by_id:
                raise _shared(path, by_id[index], token, index)
            by_id[index] = token
    elif isinstance(vocabulary, list):
        by_id = {index: entry[0] for index, entry in enumerate(vocabulary)}
    ids = {token: index for index, token in by_id.items()}
    for added in raw.get("added_tokens") or ():
        token = added["content"]
        index = added["id"]
        _in_range(path, token, index)
        if by_id.get(index, token) != token:
            raise _shared(path, by_id[index], token, index)
        if ids.get(token, index) != index:
            raise Unreadable(
                f"{path}: {quoted(token)} has two ids: {ids[token]} in the vocabulary, and {index}"
                " as an added token"
            )
        by_id[index] = token
        ids[token] = index


def _in_range(path: Path, token: str, index: int) -> None:
    if not 0 <= index < LARGEST_ID:
        raise Unreadable(
            f"{path}: {quoted(token)} has the id {index}, which is outside the vocabulary of every model"
        )


def _shared(path: Path, first: str, second: str, index: int) -> Unreadable:
    return Unreadable(
        f"{path}: {quoted(first)} and {quoted(second)} share the id {index}, so text can produce"
        " only one of them"
    )


CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
TEMPLATE = "chat_template.jinja"
TEMPLATES = "additional_chat_templates"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
LARGEST = {"tokenizer.json": 128 << 20}
LARGEST_OTHER = 16 << 20
# sha256 of the bytes that this process read of each file; the process that reads a candidate
# answers with them.
READ: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """A tokenizer read from files.

    Attributes:
        backend: the `tokenizers.Tokenizer`, with the tokens that the other files add.
        alone: whether there was a tokenizer.json and nothing else.
        config: the content of tokenizer_config.json.
        named: special tokens by name, as text.
        extra: special tokens without a name.
        templates: chat templates by name.
    """

    backend: Any
    alone: bool
    config: dict[str, Any] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    templates: dict[str, str] = field(default_factory=dict)


def read_path(path: Path) -> TokenizerFiles:
    """Read a tokenizer.json by itself, or a folder with all that belongs to it.

    Raises:
        Unreadable: with the file and the reason.
    """
    if path.is_dir():
        return _read_folder(path)
    if path.suffix != ".json":
        if not path.exists():
            raise Absent(f"{path}: this path does not exist")
        raise Unreadable(f"{path}: this is neither a tokenizer.json nor a folder that contains one")
    _, backend = _read_backend(path)
    return TokenizerFiles(backend=backend, alone=True)


def _read_backend(path: Path) -> tuple[dict[str, Any], Any]:
    from tokenizers import Tokenizer

    raw, text = read_object(path, inside=path.parent)
    if not isinstance(raw.get("model"), dict):
        raise Unreadable(f"{path}: the file has no model, so it is not a tokenizer.json")
    with panics_become(Unreadable, f"{path}: this is not a tokenizer"):
        backend = Tokenizer.from_str(text)
    check_ids(path, raw)
    return raw, backend


def _read_folder(folder: Path) -> TokenizerFiles:
    file = folder / "tokenizer.json"
    if not is_there(file):
        held = sorted(entry.name for entry in folder.iterdir())[:8]
        raise Absent(
            f"{folder}: the folder has no tokenizer.json (it contains"
            f" {', '.join(held) or 'nothing'}). What other files encode to depends on the"
            " transformers class that loads them: load the tokenizer with that class and identify"
            " the resulting object, or pass one of the files"
        )
    raw, backend = _read_backend(file)
    config = _optional(folder, CONFIG)
    templates = _templates(folder, config or {})
    special = _optional(folder, MAP)
    if config is None and special is None and not templates:
        return TokenizerFiles(backend=backend, alone=True)
    config = config or {}
    named, extra = _complete(folder, backend, raw=raw, config=config, special=special)
    return TokenizerFiles(
        backend=backend, alone=False, config=config, named=named, extra=extra, templates=templates
    )


def _optional(folder: Path, name: str) -> dict[str, Any] | None:
    return read_object(folder / name, inside=folder)[0] if is_there(folder / name) else None


def is_there(path: Path) -> bool:
    """Tell whether a file is there.

    A dangling link counts, because it must be refused and not passed over.

    Raises:
        OSError: that may not be known (`os.path.lexists` would say no).
    """
    return path.exists() or path.is_symlink()


def _templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Template by name. Files win over the configuration."""
    templates = {}
    if is_there(folder / TEMPLATE):
        templates["default"] = read_text(folder / TEMPLATE, inside=folder)
    more = folder / TEMPLATES
    if more.is_dir():
        if not more.resolve().is_relative_to(folder.resolve()):
            raise Unreadable(
                f"{more}: this is a link to a path outside its folder; replace the link with the"
                " folder"
            )
        templates |= {
            file.stem: read_text(file, inside=folder) for file in sorted(more.glob("*.jinja"))
        }
    if templates:
        return templates
    given = config.get("chat_template")
    if isinstance(given, list):
        try:
            given = {template["name"]: template["template"] for template in given}
        except (TypeError, KeyError):
            raise Unreadable(
                f"{folder / CONFIG}: chat_template must be a string or a list of objects with name"
                " and template"
            ) from None
    if given is None:
        return {}
    named = {"default": given} if isinstance(given, str) else given
    if not isinstance(named, dict) or not all(
        isinstance(template, str) for template in named.values()
    ):
        raise Unreadable(
            f"{folder / CONFIG}: chat_template must be a string or a list of objects with name and"
            " template"
        )
    return named


def _complete(
    folder: Path,
    backend: Any,
    *,
    raw: dict[str, Any],
    config: dict[str, Any],
    special: dict[str, Any] | None,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Add to the backend what the other files add.

    Returns the special tokens with and without a name.
    """
    where = folder / CONFIG
    given = dict(config)
    decoder: dict[int, Any] = {}
    if "added_tokens_decoder" in given:
        if not isinstance(given["added_tokens_decoder"], dict):
            raise Unreadable(f"{where}: added_tokens_decoder must map ids to tokens")
        for index, token in given["added_tokens_decoder"].items():
            if not (isinstance(token, dict) and str(index).isdecimal()):
                raise Unreadable(f"{where}: added_tokens_decoder must map ids to tokens")
            decoder[int(index)] = _token(token, where=where)
    else:
        # A token in special_tokens_map.json is one by standing there; in the configuration it must
        # say that it is.
        given |= {name: _typed(value) for name, value in (special or {}).items()}
        names = {_text(given[name], where=where) for name in NAMED if given.get(name)}
        for text, index in (_optional(folder, ADDED) or {}).items():
            if not isinstance(index, int):
                raise Unreadable(f"{folder / ADDED}: the file must map tokens to ids")
            flags = {"normalized": text not in names, "special": text in names}
            decoder[index] = _token({"content": text} | flags, where=where)
        for token in raw.get("added_tokens") or []:
            decoder[token["id"]] = _token(token, where=where)
    extra = given.get("extra_special_tokens") or given.get("additional_special_tokens") or []
    if not isinstance(extra, (dict, list)):
        raise Unreadable(
            f"{where}: extra_special_tokens must be a list of tokens, or a mapping of names to"
            " tokens"
        )
    by_name = extra if isinstance(extra, dict) else {}
    named = {
        name: _special(value, where=where)
        for name, value in given.items()
        if name in NAMED and value
    }
    named |= {
        name: _special(value, where=where)
        for name, value in (given | by_name).items()
        if name not in NAMED
        and (name.endswith("_token") or name in by_name)
        and value
        and _is_token(value)
    }
    listed = [_special(value, where=where) for value in (extra if isinstance(extra, list) else [])]
    with panics_become(Unreadable, f"{folder}: its special tokens cannot be added"):
        _add(
            backend,
            decoder,
            [*named.values(), *listed],
            named={token.content for token in named.values()},
        )
        backend.encode_special_tokens = bool(given.get("split_special_tokens"))
    return {name: token.content for name, token in named.items()}, tuple(
        token.content for token in listed
    )


def _add(backend: Any, decoder: dict[int, Any], special: list[Any], *, named: set[str]) -> None:
    """Add first what has an id, in order of id, then special tokens that are not there yet."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    tokens = [token for _, token in sorted(decoder.items())]
    known |= {token.content for token in tokens}
    for token in special:
        if token.content not in known:
            known.add(token.content)
            tokens.append(token)
    for token in tokens:
        token.special = token.special or token.content in named
    backend.add_tokens(tokens)


def _is_token(given: object) -> bool:
    return isinstance(given, str) or (
        isinstance(given, dict) and given.get("__type") == "AddedToken"
    )


def _typed(given: Any) -> Any:
    if isinstance(given, list):
        return [_typed(element) for element in given]
    return (
        given | {"__type": "AddedToken", "special": True}
        if isinstance(given, dict) and "content" in given
        else given
    )


def _special(given: object, *, where: Path) -> Any:
    """Return a special token: a text, or an object with flags of its own."""
    if not _is_token(given):
        raise Unreadable(
            f"{where}: a special token must be a string, or an AddedToken object with a content"
            " field"
        )
    return _token(
        given if isinstance(given, dict) else {"content": given, "special": True}, where=where
    )


def _token(given: dict[str, Any], *, where: Path) -> Any:
    from tokenizers import AddedToken

    flags = {name: given[name] for name in FLAGS if name in given}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise Unreadable(f"{where}: the flags of an added token must be true or false")
    return AddedToken(_text(given, where=where), **flags)


def _text(given: object, *, where: Path) -> str:
    text = given.get("content") if isinstance(given, dict) else given
    if not isinstance(text, str):
        raise Unreadable(f"{where}: a token must be a string, or an object with a content string")
    return text


def identify_files(files: TokenizerFiles) -> Identity:
    """Return the full identity of a tokenizer.json or a folder."""
    backend = files.backend
    if files.alone:
        return Identity.of(
            alone_parts(backend, depth="full") | {"kind": "tokenizer.json"}, depth="full"
        )
    parts = {
        "scope": "tokenizer",
        "kind": "files",
        "class": short(files.config.get("tokenizer_class")),
    }
    special = bool(backend.encode_special_tokens)
    pieces = read(backend)
    parts |= encoder_parts(backend, pieces, alone=False, encode_special_tokens=special)
    parts |= name_parts(
        files.named, files.extra, files.templates or None, token_to_id=backend.token_to_id
    )
    parts |= {name: short(files.config.get(name)) for name in SETTINGS}
    elsewhere = {"chat_template", "added_tokens_decoder", "tokenizer_class", *SETTINGS}
    parts["settings"] = short(
        {name: value for name, value in files.config.items() if name not in elsewhere}
    )
    parts |= deep_parts(view(backend), backend.get_vocab(), pieces)
    return Identity.of(parts, depth="full")


def read_bytes(path: Path, *, inside: Path) -> bytes:
    """Return the bytes of a regular file in `inside`.

    A link is followed where the hub's cache makes one: from `snapshots/<commit>/` into `blobs/`
    beside it.

    Raises:
        Unreadable: for anything else.
    """
    try:
        real = path.resolve(strict=True)
    except RuntimeError as error:
        raise Unreadable(f"{path}: {first_line(error)}") from None
    except OSError as error:
        raise refused(path, error) from None
    folder = inside.resolve()
    allowed = [folder]
    if folder.parent.name == "snapshots":
        allowed.append(folder.parent.parent / "blobs")
    if not any(real.is_relative_to(place) for place in allowed):
        raise Unreadable(
            f"{path}: this is a link to a path outside its folder, {real}; replace the link with"
            " the file"
        )
    try:
        content = read_regular(real, limit=LARGEST.get(path.name, LARGEST_OTHER), follow=False)
    except OSError as error:
        raise refused(path, error) from None
    READ[str(path)] = sha256(content)
    return content


def read_text(path: Path, *, inside: Path) -> str:
    """Return a UTF-8 text as transformers reads it, with every line end turned into a newline."""
    return _decoded(path, read_bytes(path, inside=inside)).replace("\r\n", "\n").replace("\r", "\n")


def read_object(path: Path, *, inside: Path) -> tuple[dict[str, Any], str]:
    """Return a JSON object, and its text; duplicate keys, NUL bytes and NaN are refused."""
    text = _decoded(path, read_bytes(path, inside=inside))
    if not text.strip():
        raise Unreadable(f"{path}: the file is empty")
    if "\0" in text:
        raise Unreadable(
            f"{path}: the file contains NUL bytes, the first at character offset"
            f" {text.index(chr(0))}, so it was not written completely"
        )
    try:
        tree = strict_json(text)
    except MemoryError:
        raise Unreadable(
            f"{path}: reading it needs more memory than the limit for a tokenizer"
        ) from None
    except NotStrict as error:
        raise Unreadable(f"{path}: {error}") from None
    if not isinstance(tree, dict):
        raise Unreadable(f"{path}: the content must be a JSON object, not {type(tree).__name__}")
    return tree, text


def _decoded(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: invalid UTF-8 at byte {error.start}") from None
