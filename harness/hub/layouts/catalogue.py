"""The layouts: one function for each, which makes the files of one repository."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from harness.hub.layouts import files
from harness.hub.layouts.vocabulary import byte_alphabet, byte_level, llama_model

Files = dict[str, bytes | dict[str, Any]]
"""What a layout is made of: path to bytes, or to what a JSON file holds."""

LARGE = 101_000
SMALL = 20_000
"""transformers looks at Mistral's pattern, by a request, only above 100 000 tokens."""


def gpt2() -> Files:
    """vocab.json, merges.txt and tokenizer.json, as gpt2 has them."""
    vocabulary = byte_level(8000)
    special = files.numbered(["<|endoftext|>"], first=8000)
    tokenizer = files.tokenizer_json(
        vocabulary, special=special, pre_tokenizer=files.byte_level_step(regex=True)
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
        "vocab.json": files.as_json(vocabulary.ids, indent=None),
        "merges.txt": files.merges_txt(vocabulary),
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
    special = files.numbered(GLM_TOKENS, first=size)
    return {
        "config.json": {
            "model_type": "glm4_moe",
            "architectures": ["Glm4MoeForCausalLM"],
            "vocab_size": size + len(special),
        },
        "tokenizer_config.json": {
            "added_tokens_decoder": files.decoder_entries(special),
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
        "tokenizer.json": files.tokenizer_json(byte_level(size), special=special),
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
            "added_tokens_decoder": files.decoder_entries(special),
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
    special = files.numbered(names, first=LARGE)
    tokenizer = files.tokenizer_json(
        byte_level(LARGE),
        special=special,
        post_processor=files.begin_with(names[0], LARGE),
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
            "added_tokens_decoder": files.decoder_entries(special),
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
    special = files.numbered(names, first=4171)
    code = resources.files("harness.hub.layouts").joinpath("tokenization_kimi.py.txt").read_bytes()
    template = (
        "{% for message in messages %}<|im_{{ message['role'] }}|>{{ message['content'] }}"
        + template_end
        + "{% endfor %}"
    )
    return {
        "config.json": {"model_type": "kimi_k2", "vocab_size": 4171 + len(names)},
        "tokenizer_config.json": {
            "added_tokens_decoder": files.decoder_entries(special),
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
        "tokenizer.json": files.tokenizer_json(vocabulary, special={}),
    }


def mistral() -> Files:
    """Mistral's kind: the pattern that `fix_mistral_regex` replaces, found by a tag that only the
    hub can tell.
    """
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    special = files.numbered(names, first=LARGE)
    tokenizer = files.tokenizer_json(
        byte_level(LARGE), special=special, post_processor=files.begin_with("<s>", special["<s>"])
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
            "added_tokens_decoder": files.decoder_entries(special),
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
    special = files.numbered(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], first=size)
    plain = files.numbered(["<tool_call>", "</tool_call>"], first=size + 3)
    tokenizer = files.tokenizer_json(
        vocabulary,
        special=special,
        plain=plain,
        pre_tokenizer=files.split_then_bytes(files.QWEN_PATTERN),
        normalizer={"type": "NFC"},
    )
    entries = files.decoder_entries(special) | {
        number: entry | {"special": False} for number, entry in files.decoder_entries(plain).items()
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
            "chat_template": files.CHATML,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 131072,
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
        },
        "vocab.json": files.as_json(vocabulary.ids, indent=None),
        "merges.txt": files.merges_txt(vocabulary),
        "tokenizer.json": tokenizer,
    }


def templates() -> Files:
    """Several chat templates: the default in its file, others in their folder."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    special = files.numbered(names, first=2000)
    tokenizer = files.tokenizer_json(
        byte_level(2000), special=special, pre_tokenizer=files.byte_level_step(regex=True)
    )
    return {
        "config.json": {"model_type": "llama", "vocab_size": 2003},
        "tokenizer_config.json": {
            "added_tokens_decoder": files.decoder_entries(special),
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 8192,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "tokenizer.json": tokenizer,
        "chat_template.jinja": files.CHATML.encode(),
        "additional_chat_templates/tool_use.jinja": (files.CHATML + "{{ tools }}").encode(),
        "additional_chat_templates/rag.jinja": (files.CHATML + "{{ documents }}").encode(),
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
