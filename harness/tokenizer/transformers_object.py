"""A transformers tokenizer: its names, templates and settings, and its code where code decides ids.

The algorithm of a slow tokenizer, a SentencePiece tokenizer or a repository's own class is Python
code, so the code is part of its identity: the source of every class outside transformers' base
classes, and the state of the object (attributes, a SentencePiece model's bytes, a table of merges).
Two of them are semantically equal if code, state, vocabulary and probe ids are.
"""

from __future__ import annotations

import dis
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import CodeType
from typing import Any

from harness.tokenizer.backend import NONE, Parts, round_trip, type_of
from harness.tokenizer.identity import PROBES, Depth, canonical_json, digest_text, short
from harness.tokenizer.problem import Unidentifiable, panics_become

# Packages of code that lies beside a tokenizer: as transformers copies it, and as `loading` imports
# it.
OWN_PACKAGE = "rankproof_remote_"
BESIDE = ("transformers_modules.", OWN_PACKAGE)
# What a class has besides what its source defines. `_auto_class` is set by whoever registers it.
UNWRITTEN = {"_abc_impl", "_auto_class"}
WRITTEN = {"__call__", "__getattr__", "__getstate__", "__init__", "__len__", "__setstate__"}


def source_of(function: object) -> str:
    """Digest of a function's source; what is known of it where there is none."""
    try:
        return digest_text(inspect.getsource(inspect.unwrap(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError):
        return f"no source: {type(function).__qualname__}"


def name_of(kind: type) -> str:
    """Module and name of a class.

    Code that lies beside a tokenizer has the name it has there, whoever imported it.
    """
    module = kind.__module__
    return (
        f"{module.rpartition('.')[2] if module.startswith(BESIDE) else module}.{kind.__qualname__}"
    )


def code_of(kind: type) -> dict[str, dict[str, str] | str]:
    """For every class of a tokenizer but transformers' base classes: its source, and what it really
    defines.

    The source of code that lies beside a tokenizer is that of the class's file and of all files
    that it imports from beside itself, wherever a loader put them and whatever else lies there. It
    is read now, and may have been written since the class was made. So the names that the class has
    stand beside it: one made from half of a file is another.
    """
    sources: dict[str, dict[str, str] | str] = {}
    for base in kind.__mro__:
        if base is object or re.match(r"transformers\.(tokenization_|utils)", base.__module__):
            continue
        try:
            file = Path(inspect.getfile(base))
            # An installed package is one version as a whole, and may be large.
            files = _with_neighbours(file) if base.__module__.startswith(BESIDE) else [file]
            digests = {
                Path(os.path.relpath(neighbour, file.parent)).as_posix(): digest_text(
                    neighbour.read_bytes()
                )
                for neighbour in files
            }
        except (OSError, TypeError, SyntaxError, ValueError):
            sources[base.__qualname__] = "no source"
            continue
        names = (name for name in vars(base) if name not in UNWRITTEN)
        defined = sorted(name for name in names if name in WRITTEN or not name.startswith("__"))
        sources[base.__qualname__] = digests | {"defines": digest_text("\n".join(defined))}
    return sources


def _with_neighbours(file: Path) -> list[Path]:
    """Return a file and those it imports relatively, directly or not.

    An empty `__init__.py` says nothing.
    """
    start = file.with_name("__init__.py")
    files = {file, start} if start.is_file() and start.stat().st_size else {file}
    waiting = list(files)
    while waiting:
        importing = waiting.pop()
        for level, name, members in _relative_imports(
            compile(importing.read_bytes(), importing, "exec", dont_inherit=True)
        ):
            place = importing.parent.joinpath(
                *[".."] * (level - 1), *name.split(".") if name else []
            )
            for path in (place, *(place / member for member in members)):
                for candidate in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
                    there = Path(os.path.normpath(candidate))
                    if there not in files and there.is_file() and there.stat().st_size:
                        files.add(there)
                        waiting.append(there)
    return sorted(files)


def _relative_imports(code: CodeType) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Level, module and names of `from .module import names`, anywhere in a file.

    Read from compiled code: `ast.parse` fails now and then where threads use it at once (CPython
    gh-106905).
    """
    instructions = [
        instruction
        for instruction in dis.get_instructions(code)
        if instruction.opname not in {"CACHE", "EXTENDED_ARG"}
    ]
    for level, members, instruction in zip(
        instructions, instructions[1:], instructions[2:], strict=False
    ):
        if instruction.opname == "IMPORT_NAME" and level.argval:
            yield level.argval, instruction.argval, tuple(members.argval or ())
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from _relative_imports(inside)


# Methods that decide ids; a subclass or a patch that brings its own is code, not data.
DECIDING = (
    "__call__",
    "encode",
    "_encode_plus",
    "_batch_encode_plus",
    "batch_encode_plus",
    "encode_plus",
    "_call_one",
    "tokenize",
    "convert_tokens_to_ids",
    "_convert_token_to_id",
    "_convert_token_to_id_with_added_voc",
    "apply_chat_template",
    "build_inputs_with_special_tokens",
    "set_truncation_and_padding",
)
SETTINGS = (
    "model_max_length",
    "padding_side",
    "truncation_side",
    "model_input_names",
    "clean_up_tokenization_spaces",
)


def transformers_parts(tokenizer: Any) -> Parts:
    """Names, templates and settings of any transformers tokenizer."""

    def token_to_id(token: str) -> int | None:
        index = tokenizer.convert_tokens_to_ids(token)
        return int(index) if index is not None else None

    named = dict(tokenizer.special_tokens_map)
    extra = named.pop("additional_special_tokens", [])
    extra = [*(extra or []), *(getattr(tokenizer, "extra_special_tokens", None) or [])]
    return name_parts(
        named, extra, getattr(tokenizer, "chat_template", None), token_to_id=token_to_id
    ) | {name: short(_plain(getattr(tokenizer, name, None))) for name in SETTINGS}


def name_parts(
    named: Mapping[str, Any],
    extra: Iterable[Any],
    templates: object,
    *,
    token_to_id: Callable[[str], int | None],
) -> dict[str, str]:
    """Return the parts `names`, `special tokens`, `eos`, `bos`, `pad` and `chat templates`.

    Args:
        named: token by name (`eos_token`); a token is text or has its text as `str()`.
        extra: special tokens without a name.
        templates: None, one template, or templates by name.
        token_to_id: id of a token, None where it has none.
    """
    known = {
        name: [str(token), token_to_id(str(token))]
        for name, token in named.items()
        if token is not None
    }
    others = sorted(
        {str(token) for token in extra}
        - {str(token) for token in named.values() if token is not None}
    )
    digests = {name: digest_text(text) for name, text in by_name(templates).items()}
    return {
        "names": canonical_json(known),
        "special tokens": canonical_json([[token, token_to_id(token)] for token in others]),
        **{name: canonical_json(known.get(f"{name}_token")) for name in ("eos", "bos", "pad")},
        "chat templates": canonical_json(digests) if digests else NONE,
    }


def by_name(templates: object) -> dict[str, str]:
    """Chat templates by name; a lone one is `default`."""
    if isinstance(templates, list):
        templates = {template["name"]: template["template"] for template in templates}
    if isinstance(templates, Mapping):
        return {str(name): str(text) for name, text in templates.items()}
    return {} if templates is None else {"default": str(templates)}


def own_code(tokenizer: object) -> Parts:
    """Digests of methods that decide ids and that are not transformers' own base classes'."""
    digests = {
        name: source_of(vars(tokenizer)[name]) for name in DECIDING if name in vars(tokenizer)
    }
    for kind in type(tokenizer).__mro__:
        if kind.__module__.startswith("transformers.tokenization_") or kind is object:
            continue
        digests |= {
            f"{kind.__qualname__}.{name}": source_of(vars(kind)[name])
            for name in DECIDING
            if name in vars(kind)
        }
    return {"own code": canonical_json(digests)} if digests else {}


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value if value != float("inf") else "inf"
    if isinstance(value, (list, tuple)):
        return [_plain(element) for element in value]
    return repr(type(value))


def vocabulary_digest(vocabulary: dict[str, int]) -> str:
    """Digest of tokens with their ids."""
    return digest_text(
        "\n".join(sorted(f"{index} {token!r}" for token, index in vocabulary.items()))
    )


DEEPEST = 8
# Attributes that decide no ids: where it came from, what is left over from a call, what other parts
# say.
ELSEWHERE = {
    "_in_target_context_manager",
    "_pad_token_type_id",
    "_processor_class",
    "backend",
    "cache",
    "_cache",
    "chat_template",
    "clean_up_tokenization_spaces",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
    "deprecation_warnings",
    "files_loaded",
    "init_inputs",
    "init_kwargs",
    "merges_file",
    "model_input_names",
    "model_max_length",
    "name_or_path",
    "padding_side",
    "response_schema",  # how an answer is parsed, in older releases
    "response_template",  # the same in newer ones
    "tokens_trie",  # made from the added tokens
    "truncation_side",
    "verbose",
    "vocab_file",
}


def python_parts(tokenizer: Any, *, depth: Depth) -> Parts:
    """Every part of a tokenizer that is Python code.

    The cheap form leaves out the round trip only.
    """
    with panics_become(Unidentifiable, "this tokenizer does not work"):
        vocabulary = tokenizer.get_vocab()
        ids = {name: _ids(tokenizer, text) for name, text in PROBES.items()}
        ids["with special tokens"] = list(tokenizer.encode(PROBES["plain"]))
        names = transformers_parts(tokenizer)
    kind = type(tokenizer)
    code = code_of(kind)
    vocabulary_part = vocabulary_digest(vocabulary)
    state = digest_text(canonical_json(_state(_held(tokenizer))))
    added = digest_text(canonical_json(_state(getattr(tokenizer, "added_tokens_decoder", {}))))
    encoding = [code, vocabulary_part, state, added, ids]
    parts = {
        "scope": "tokenizer",
        "kind": "transformers in Python",
        "class": name_of(kind),
        "backend": _engine(tokenizer),
        "encoding": digest_text(canonical_json(encoding)),
        "vocabulary": vocabulary_part,
        "added tokens": added,
        "state": state,
        "code": canonical_json(code),
        "probe ids": canonical_json(ids),
        **dict.fromkeys(
            ("merges", "normalizer", "pre_tokenizer", "post_processor", "decoder"), NONE
        ),
        **own_code(tokenizer),
        **names,
    }
    if depth == "full":
        parts |= {"get_vocab": vocabulary_part, "tokens": str(len(vocabulary))}
        parts["round trip"] = round_trip(
            lambda text: _ids(tokenizer, text), lambda ids: str(tokenizer.decode(ids))
        )
    return parts


def _ids(tokenizer: Any, text: str) -> list[int] | str:
    try:
        return list(tokenizer.encode(text, add_special_tokens=False))
    # Whatever the class raises, each time alike, is what it does.
    except Exception as error:  # noqa: BLE001
        return f"error: {type(error).__name__}"


def _engine(tokenizer: Any) -> str:
    """Return the engine inside: a SentencePiece processor, a tiktoken encoding, or the class
    itself.
    """
    for name in ("sp_model", "_tokenizer", "tokenizer", "model", "encoder"):
        held = vars(tokenizer).get(name)
        if held is not None and type(held).__module__.split(".")[0] not in {
            "builtins",
            "transformers",
        }:
            return type_of(held)
    return "python"


def _held(tokenizer: Any) -> dict[str, Any]:
    """Return the attributes that may decide ids."""
    # Which tokens in a message become text, if a call asks for that; older releases do not have the
    # attribute.
    unset = ("chat_control_tokens", None)
    return {
        name: attribute
        for name, attribute in vars(tokenizer).items()
        if name not in ELSEWHERE and (name, attribute) != unset
    }


def _state(value: Any, *, depth: int = 0) -> Any:
    """Return a value as JSON that depends on nothing but its content."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes):
        return digest_text(value)
    if depth > DEEPEST:
        return f"deeper than {DEEPEST}: {type(value).__qualname__}"
    if isinstance(value, Mapping):
        if all(type(key) is str and type(element) is int for key, element in value.items()):
            return dict(value)
        pairs = [
            [canonical_json(_state(key, depth=depth + 1)), _state(element, depth=depth + 1)]
            for key, element in value.items()
        ]
        return {"pairs": sorted(pairs, key=lambda pair: str(pair[0]))}
    if isinstance(value, AbstractSet):
        return {
            "set": sorted(canonical_json(_state(element, depth=depth + 1)) for element in value)
        }
    if isinstance(value, (list, tuple)):
        return [_state(element, depth=depth + 1) for element in value]
    if isinstance(value, re.Pattern):
        return {"pattern": value.pattern, "flags": value.flags}
    return {"type": type(value).__qualname__} | _inside(value, depth=depth)


def _inside(value: Any, *, depth: int) -> dict[str, Any]:
    if hasattr(value, "serialized_model_proto"):
        return {"sentencepiece": digest_text(value.serialized_model_proto())}
    if hasattr(value, "to_str") and hasattr(value, "get_added_tokens_decoder"):
        return {"tokenizers": digest_text(value.to_str())}
    if inspect.isroutine(value):
        return {"function": value.__qualname__, "source": source_of(value)}
    if hasattr(value, "tobytes"):
        return {"array": digest_text(value.tobytes())}
    if type(value).__qualname__ == "AddedToken":
        flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        return {flag: getattr(value, flag) for flag in flags}
    if hasattr(value, "pattern") and isinstance(value.pattern, str):
        return {"pattern": value.pattern, "flags": getattr(value, "flags", None)}
    held = getattr(value, "__dict__", {})
    return {
        "holds": _state(
            {name: attribute for name, attribute in held.items() if name not in ELSEWHERE},
            depth=depth + 1,
        )
    }
