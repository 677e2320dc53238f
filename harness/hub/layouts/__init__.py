"""Tokenizer repositories in the layouts that matter, made by this project: the same bytes on every
machine.

`write` puts them into a folder; `cached` gives a folder in the user's cache that holds them, made
when it is missing or does not hold what it should.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path

from harness.forms import manifest
from harness.forms.digest import fold, sha256, sha256_of
from harness.forms.strict_json import JSON
from harness.forms.variables import cache_folder
from harness.hub import HubError
from harness.hub.layouts.files import (
    CHATML,
    QWEN_PATTERN,
    as_json,
    begin_with,
    byte_alphabet,
    byte_level,
    byte_level_step,
    decoder_entries,
    llama_model,
    merges_txt,
    numbered,
    split_then_bytes,
    tokenizer_json,
)

ORGANISATION = "rankproof"

__all__ = ["LAYOUTS", "ORGANISATION", "cached", "digest", "identity", "repository_files", "write"]


def identity(name: str) -> str:
    """Return the repository id of a layout, as clients ask for it."""
    return f"{ORGANISATION}/{name.partition('@')[0]}"


def repository_files(name: str) -> dict[str, bytes]:
    """Return the files of a layout: path to bytes.

    Raises:
        HubError: no such layout.
    """
    if name not in LAYOUTS:
        raise HubError(f"the layout {name!r} does not exist; the layouts are {', '.join(LAYOUTS)}")
    return {
        path: held if isinstance(held, bytes) else as_json(held)
        for path, held in LAYOUTS[name]().items()
    }


def write(folder: Path, names: Iterable[str] | None = None) -> list[Path]:
    """Write layouts as ``folder/rankproof/NAME/…``; returns the folders of the repositories.

    Raises:
        HubError: no such layout, or a folder that is there and not empty.
        OSError: it cannot be written.
    """
    wanted = list(LAYOUTS if names is None else names)
    places = []
    for name in wanted:
        files = repository_files(name)
        place = folder / ORGANISATION / name
        if place.exists() and any(place.iterdir()):
            raise HubError(f"{place} already exists; remove it, or choose another folder")
        for path, data in files.items():
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        places.append(place)
    return places


def digest() -> str:
    """Return what names the layouts of this version: sha256 over everything that makes them."""
    entries = resources.files("harness.hub.layouts").iterdir()
    sources = [entry for entry in entries if entry.name.endswith((".py", ".txt"))]
    return fold({source.name: sha256(source.read_bytes()) for source in sources})


def cached(names: Iterable[str] | None = None, *, cache: Path | None = None) -> Path:
    """Return a folder with layouts, to be served and not to be changed.

    Made once, then found by digest and checked.

    Args:
        names: layouts; default: all.
        cache: where they are kept; default: among the user's caches.

    Raises:
        HubError: no such layout.
        OSError: the cache cannot be written.
    """
    wanted = sorted(LAYOUTS if names is None else set(names))
    key = sha256("\n".join([digest(), *wanted]).encode())[:32]
    root = cache or cache_folder("layouts")
    place = root / key
    if _is_whole(place):
        return place
    root.mkdir(parents=True, exist_ok=True)
    from filelock import FileLock  # a scenario that names one of these is read without it

    # One process makes it; others that want the same wait for it, and find it whole.
    with FileLock(root / f"{key}.lock"):
        if not _is_whole(place):  # another process may have been first
            shutil.rmtree(place, ignore_errors=True)
            write(place, wanted)
            # Last: what has no manifest, or another one, is made anew.
            (place / manifest.NAME).write_bytes(manifest.encode(_digests(place)))
    return place


def _is_whole(place: Path) -> bool:
    """Return whether a folder of the cache holds exactly what its manifest says."""
    try:
        return manifest.parse((place / manifest.NAME).read_bytes()) == _digests(place)
    except (OSError, ValueError):
        return False


def _digests(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != manifest.NAME)
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in paths}


Files = dict[str, bytes | dict[str, JSON]]
"""What a layout is made of: path to bytes, or to what a JSON file holds."""

LARGE = 101_000
SMALL = 20_000
"""transformers looks at Mistral's pattern, by a request, only above 100 000 tokens."""


def gpt2() -> Files:
    """vocab.json, merges.txt and tokenizer.json, as gpt2 has them."""
    vocabulary = byte_level(8000)
    special = numbered(["<|endoftext|>"], first=8000)
    tokenizer = tokenizer_json(
        vocabulary, special=special, pre_tokenizer=byte_level_step(regex=True)
    )
    return gpt2_files() | {"tokenizer.json": tokenizer}


def gpt2_files() -> Files:
    """vocab.json and merges.txt alone."""
    vocabulary = byte_level(8000)
    vocabulary.ids["<|endoftext|>"] = 8000
    end = "<|endoftext|>"
    return {
        "config.json": {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": 8001,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer",
            "bos_token": end,
            "eos_token": end,
            "unk_token": end,
            "model_max_length": 1024,
        },
        "vocab.json": as_json(vocabulary.ids, indent=None),
        "merges.txt": merges_txt(vocabulary),
    }


GLM_TOKENS = [
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
]
GLM_TEMPLATE = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}{%"
    " endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def glm45(size: int = LARGE, class_name: str = "PreTrainedTokenizer") -> Files:
    """GLM-4.5's kind: more than 100 000 tokens, and a class name that names no tokenizer one could
    make.
    """
    special = numbered(GLM_TOKENS, first=size)
    return {
        "config.json": {
            "model_type": "glm4_moe",
            "architectures": ["Glm4MoeForCausalLM"],
            "vocab_size": size + len(special),
        },
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder_entries(special),
            "additional_special_tokens": GLM_TOKENS,
            "clean_up_tokenization_spaces": False,
            "do_lower_case": False,
            "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "extra_special_tokens": {},
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 128000,
            "padding_side": "left",
            "remove_space": False,
            "tokenizer_class": class_name,
        },
        "tokenizer.json": tokenizer_json(byte_level(size), special=special),
        "chat_template.jinja": GLM_TEMPLATE.encode(),
    }


def llama2() -> Files:
    """Llama 2's kind: a SentencePiece model and no tokenizer.json."""
    size = 4000
    special = {"<unk>": 0, "<s>": 1, "</s>": 2}
    template = (
        "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' +"
        " message['content'] + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + ' ' + eos_token"
        " }}{% endif %}{% endfor %}"
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return {
        "config.json": {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": size,
        },
        "tokenizer_config.json": {
            "add_bos_token": True,
            "add_eos_token": False,
            "added_tokens_decoder": decoder_entries(special),
            **names,
            "chat_template": template,
            "clean_up_tokenization_spaces": False,
            "legacy": False,
            "model_max_length": 4096,
            "padding_side": "left",
            "tokenizer_class": "LlamaTokenizer",
        },
        "special_tokens_map.json": names,
        "tokenizer.model": llama_model(size),
        ".gitattributes": b"*.model filter=lfs diff=lfs merge=lfs -text\n",
    }


def llama3() -> Files:
    """Llama 3's kind: more than 100 000 tokens, a token put before every text, a template in a file
    of its own.
    """
    names = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ]
    special = numbered(names, first=LARGE)
    tokenizer = tokenizer_json(
        byte_level(LARGE),
        special=special,
        post_processor=begin_with(names[0], LARGE),
        ignore_merges=True,
    )
    template = (
        "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role']"
        " }}<|end_header_id|>\n\n{{ message['content'] }}<|eot_id|>{% endfor %}"
    )
    return {
        "config.json": {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": LARGE + len(special),
        },
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder_entries(special),
            "bos_token": names[0],
            "eos_token": names[4],
            "clean_up_tokenization_spaces": True,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 131072,
            "padding_side": "left",
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "special_tokens_map.json": {"bos_token": names[0], "eos_token": names[4]},
        "tokenizer.json": tokenizer,
        "chat_template.jinja": template.encode(),
    }


def kimi(template_end: str = "<|im_end|>") -> Files:
    """Kimi's kind: tokenizer code in the repository, ranks in a tiktoken file, and a plain
    tokenizer.json beside it.
    """
    vocabulary = byte_level(4171)
    letters = {char: byte for byte, char in byte_alphabet().items()}
    ranks = b"".join(
        base64.b64encode(bytes(letters[char] for char in token)) + f" {number}\n".encode()
        for token, number in vocabulary.ids.items()
    )
    names = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>"]
    special = numbered(names, first=4171)
    code = resources.files("harness.hub.layouts").joinpath("tokenization_kimi.py.txt").read_bytes()
    template = (
        "{% for message in messages %}<|im_{{ message['role'] }}|>{{ message['content'] }}"
        + template_end
        + "{% endfor %}"
    )
    return {
        "config.json": {"model_type": "kimi_k2", "vocab_size": 4171 + len(names)},
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder_entries(special),
            "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
            "bos_token": "[BOS]",
            "eos_token": "[EOS]",
            "pad_token": "[EOS]",
            "chat_template": template,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 131072,
            "tokenizer_class": "TikTokenTokenizer",
        },
        "tiktoken.model": ranks,
        "tokenization_kimi.py": code,
        "tokenizer.json": tokenizer_json(vocabulary, special={}),
    }


def mistral() -> Files:
    """Mistral's kind: the pattern that `fix_mistral_regex` replaces, found by a tag that only the
    hub can tell.
    """
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    special = numbered(names, first=LARGE)
    tokenizer = tokenizer_json(
        byte_level(LARGE), special=special, post_processor=begin_with("<s>", special["<s>"])
    )
    readme = (
        b"---\nlicense: apache-2.0\nbase_model:\n-"
        b" mistralai/Mistral-Small-3.1-24B-Base-2503\n---\n\n# A layout\n"
    )
    return {
        "README.md": readme,
        "config.json": {
            "model_type": "mistral",
            "architectures": ["MistralForCausalLM"],
            "transformers_version": "4.50.0",
            "vocab_size": LARGE + len(special),
        },
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder_entries(special),
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": 131072,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "tokenizer.json": tokenizer,
        "chat_template.jinja": (
            b"{% for message in messages %}[INST]{{ message['content'] }}[/INST]{% endfor %}"
        ),
    }


def qwen() -> Files:
    """Qwen's kind: vocab.json, merges.txt and tokenizer.json, NFC, ChatML inside
    tokenizer_config.json.
    """
    size = 12_000
    vocabulary = byte_level(size)
    special = numbered(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], first=size)
    plain = numbered(["<tool_call>", "</tool_call>"], first=size + 3)
    tokenizer = tokenizer_json(
        vocabulary,
        special=special,
        plain=plain,
        pre_tokenizer=split_then_bytes(QWEN_PATTERN),
        normalizer={"type": "NFC"},
    )
    entries = decoder_entries(special) | {
        number: entry | {"special": False} for number, entry in decoder_entries(plain).items()
    }
    return {
        "config.json": {
            "model_type": "qwen2",
            "architectures": ["Qwen2ForCausalLM"],
            "vocab_size": size + 5,
        },
        "tokenizer_config.json": {
            "add_prefix_space": False,
            "added_tokens_decoder": entries,
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "chat_template": CHATML,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 131072,
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
        },
        "vocab.json": as_json(vocabulary.ids, indent=None),
        "merges.txt": merges_txt(vocabulary),
        "tokenizer.json": tokenizer,
    }


def templates() -> Files:
    """Several chat templates: the default in its file, others in their folder."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    special = numbered(names, first=2000)
    tokenizer = tokenizer_json(
        byte_level(2000), special=special, pre_tokenizer=byte_level_step(regex=True)
    )
    return {
        "config.json": {"model_type": "llama", "vocab_size": 2003},
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder_entries(special),
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 8192,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "tokenizer.json": tokenizer,
        "chat_template.jinja": CHATML.encode(),
        "additional_chat_templates/tool_use.jinja": (CHATML + "{{ tools }}").encode(),
        "additional_chat_templates/rag.jinja": (CHATML + "{{ documents }}").encode(),
    }


LAYOUTS: Mapping[str, Callable[[], Files]] = {
    "gpt2": gpt2,
    "gpt2-files": gpt2_files,
    "glm45": glm45,
    "glm45-small": lambda: glm45(SMALL),
    "glm45-backend-class": lambda: glm45(class_name="TokenizersBackend"),
    "llama2": llama2,
    "llama3": llama3,
    "kimi": kimi,
    # The pinned revision of the same repository: its template ends turns differently, nothing else
    # differs.
    "kimi@pinned": lambda: kimi("[EOS]"),
    "mistral": mistral,
    "qwen": qwen,
    "templates": templates,
}
"""Name of the repository, with ``@revision`` for a revision beside ``main``, to what makes its
files.
"""
