"""Names that engines know: types of keys, architectures, tokenizer models, pre-tokenizers and their
splits.

Data, as of llama.cpp's llama-vocab.cpp and gguf's constants (0.19). Who meets a name that is not
here says so and does not guess: a pre-tokenizer that is taken for another one gives other ids for
the same text.

llama-vocab.cpp quotes the pattern of the original tokenizer.json beside its own. `SPLITS` holds
only names whose original is quoted there, or is one component of the tokenizers library; any other
is compared by its name with other GGUF files and with nothing else. Of each split llama.cpp
(llama-cpp-python 0.3.36) and the tokenizers library gave the same ids for every text that was
tried, but of `tekken` (234 of 9,201 texts differ; in the one that was looked at llama.cpp cuts
before a combining mark).
"""

from __future__ import annotations

import re
from typing import Any

from harness.tokenizer.identity import canonical_json

TOKENS = "tokenizer.ggml.tokens"
TYPES = "tokenizer.ggml.token_type"
SCORES = "tokenizer.ggml.scores"
MERGES = "tokenizer.ggml.merges"
MODEL = "tokenizer.ggml.model"
PRE = "tokenizer.ggml.pre"
TEMPLATE = "tokenizer.chat_template"
BPE = "gpt2"
SPM = "llama"
WPM = "bert"
UGM = "t5"

# Names of `tokenizer.ggml.model`, and what kind of tokenizer each is.
MODELS = {
    BPE: "byte-level BPE",
    SPM: "SentencePiece BPE",
    WPM: "WordPiece",
    UGM: "SentencePiece Unigram",
    "gemma4": "BPE with escaped spaces",
    "rwkv": "RWKV's trie",
    "plamo2": "PLaMo-2's trie",
}
# Names of `tokenizer.ggml.model` of a model that has no tokenizer.
WITHOUT = ("none", "no_vocab")

_IGNORE_MERGES = """
llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano youtu tekken minicpm5
granite-embed-multi-97m glm4 glm5
"""
_ADD_BOS = """
llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken chameleon
"""
_OTHERS = """
default deepseek-llm deepseek-coder deepseek-v3 falcon mpt starcoder gpt-2 phi-2 jina-es jina-de
gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jais-2 gemma4 granite-embed-multi-311m
sarvam-moe jina-v1-en jina-v2-code roberta-bpe whitespace refact command-r qwen2 deepseek-r1-qwen
kormo f2llmv2 qwen35 stablelm2 olmo dbrx smaug-bpe poro-chat chatglm-bpe viking jais smollm
codeshell bloom gpt3-finnish exaone exaone4 exaone-moe minerva-7b megrez gpt-4o llama4 kanana2
talkie tiny_aya cohere2moe superbpe trillion granite-docling bailingmoe bailingmoe2 llada-moe
seed-coder hunyuan hunyuan-dense joyai-llm hy_v4 spark2_5 ufakzeka kimi-k2 grok-2 afmoe laguna
minimax-m2 solar-open mellum2
"""
_ARCHITECTURES = """
clip llama llama4 deci falcon baichuan grok gpt2 gptj gptneox mpt starcoder refact bert modern-bert
nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom stablelm qwen qwen2
qwen2moe qwen2vl qwen3 qwen3moe qwen3next qwen3vl qwen3vlmoe qwen35 qwen35moe phi2 phi3 phimoe
plamo plamo2 plamo3 codeshell orion internlm2 minicpm minicpm3 gemma gemma2 gemma3 gemma3n gemma4
gemma-embedding starcoder2 rwkv6 rwkv6qwen2 rwkv7 arwkv7 mamba mamba2 jamba xverse command-r
cohere2 dbrx olmo olmo2 olmoe openelm arctic deepseek deepseek2 deepseek2-ocr chatglm glm4 glm4moe
glm-dsa bitnet bitnet-b1.58 bitnet-25 t5 t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe
exaone exaone4 exaone-moe granite granitemoe granitehybrid chameleon wavtokenizer-dec plm
bailingmoe bailingmoe2 dots1 arcee afmoe ernie4_5 ernie4_5-moe falcon-h1 hunyuan-moe hunyuan-dense
hunyuan_vl smollm3 gpt-oss lfm2 lfm2moe dream smallthinker llada llada-moe seed_oss grovemoe
apertus minimax-m2 cogvlm rnd1 pangu-embedded mistral3 mistral4 paddleocr mimo2 step35 llama-embed
maincoder kimi-linear
"""
# Pre-tokenizers that take a word of the vocabulary whole, whatever its merges: GGUF has no key for
# it.
IGNORE_MERGES = frozenset(_IGNORE_MERGES.split())
# Those that put the beginning-of-sequence token first where `add_bos_token` does not say.
ADD_BOS = frozenset(_ADD_BOS.split())
PRE_TOKENIZERS = IGNORE_MERGES | ADD_BOS | frozenset(_OTHERS.split())
ARCHITECTURES = frozenset(_ARCHITECTURES.split())

_U32 = ("uint32",)
_FLOAT = ("float32",)
_TEXT = ("string",)
_FLAG = ("bool",)
# A count may be one number, or one for each layer.
_COUNTS = ("uint32", "array of uint32", "array of int32")
_PATTERNS = {
    r"general\.(architecture|name|type|author|version|organization|finetune|basename)": _TEXT,
    r"general\.(description|size_label|license)": _TEXT,
    r"general\.(alignment|quantization_version|file_type)": _U32,
    r"general\.(tags|languages)": ("array of string",),
    r"[^.]+\.(context_length|embedding_length|block_count|vocab_size|expert_count|expert_used_count)": (
        _U32
    ),
    r"[^.]+\.feed_forward_length": _COUNTS,
    r"[^.]+\.attention\.head_count(_kv)?": _COUNTS,
    r"[^.]+\.attention\.(key_length|value_length|sliding_window)": _U32,
    r"[^.]+\.attention\.layer_norm(_rms)?_epsilon": _FLOAT,
    r"[^.]+\.rope\.dimension_count": _U32,
    r"[^.]+\.rope\.(freq_base|scaling\.factor)": _FLOAT,
    r"[^.]+\.rope\.scaling\.type": _TEXT,
    r"tokenizer\.ggml\.(model|pre)": _TEXT,
    r"tokenizer\.ggml\.(tokens|merges)": ("array of string",),
    r"tokenizer\.ggml\.scores": ("array of float32",),
    r"tokenizer\.ggml\.token_type": ("array of int32", "array of uint32"),
    r"tokenizer\.ggml\.\w+_token_id": _U32,
    r"tokenizer\.ggml\.(add_(bos|eos|sep)_token|add_space_prefix|remove_extra_whitespaces)": _FLAG,
    r"tokenizer\.ggml\.precompiled_charsmap": ("array of int8", "array of uint8"),
    r"tokenizer\.(huggingface\.json|rwkv\.world|chat_template(\..+)?)": _TEXT,
    r"tokenizer\.chat_templates": ("array of string",),
    r"split\.(no|count)": ("uint16",),
}
_KNOWN = [(re.compile(pattern), types) for pattern, types in _PATTERNS.items()]


def types_of(key: str) -> tuple[str, ...] | None:
    """Return the types that engines read this key with; None for a key that is not known here."""
    return next((types for pattern, types in _KNOWN if pattern.fullmatch(key)), None)


Component = dict[str, Any]

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+{_ENDS}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD = r"[^\r\n\p{L}\p{N}]?"
_CASED = rf"{_WORD}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_WORD}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
_REST_OF_CASED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PUNCTUATED = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# The patterns that text is split at, one after the other, by the name that a split has here.
PATTERNS: dict[str, tuple[str, ...]] = {
    "llama-3": (rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",),
    "qwen2": (rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|\p{{N}}|{_REST}",),
    "qwen35": (
        rf"{_CONTRACTIONS}|{_WORD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+{_ENDS}",
    ),
    "tekken": (rf"{_WORD}{_UPPER}*{_LOWER}+|{_WORD}{_UPPER}+{_LOWER}*|\p{{N}}|{_REST_OF_CASED}",),
    "gpt-4o": (rf"{_CASED}|\p{{N}}{{1,3}}|{_REST_OF_CASED}",),
    "minicpm5": (r"\p{N}{1,3}", rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|\p{{N}}+|{_REST}"),
    "deepseek-v3": (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _PUNCTUATED),
    "seed-coder": (
        (
            rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|\p{{N}}{{1}}|"
            r" ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    ),
    "bailingmoe": (
        (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|"
            r" ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
        ),
    ),
    "gpt-2": (GPT_2,),
}

_NAMES = {
    "llama-3": (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx"
        " smaug-bpe chatglm-bpe glm4 glm5"
    ),
    "qwen2": "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
    "qwen35": "qwen35",
    "tekken": "tekken",
    "gpt-4o": "gpt-4o llama4 kanana2 talkie minimax-m2",
    "minicpm5": "minicpm5",
    "deepseek-v3": "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    "seed-coder": "seed-coder",
    "bailingmoe": "bailingmoe bailingmoe2 llada-moe",
    "gpt-2": (
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt"
        " olmo jais trillion granite-docling exaone4"
    ),
    "digits, gpt-2": "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
}
# The name that a split has here, by llama.cpp's name.
SPLITS = {name: split for split, names in _NAMES.items() for name in names.split()}

_BY_PATTERNS = {patterns: split for split, patterns in PATTERNS.items()}


def split_of_pattern(pattern: str) -> str:
    """Return the name of the split at a lone pattern, or the pattern."""
    return _BY_PATTERNS.get((_written(pattern),), canonical_json({"pattern": _written(pattern)}))


def split_of_components(chain: list[Component]) -> str:
    """Return the name of the split that a chain of pre-tokenizers makes (`pre_tokenizer_steps`), or
    the chain as JSON.
    """
    *before, last = chain or [{}]
    opaque = canonical_json(chain)
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return opaque
    if last.get("use_regex", True):
        if not before:
            return "gpt-2"
        return (
            "digits, gpt-2" if before == [{"type": "Digits", "individual_digits": True}] else opaque
        )
    patterns = []
    for step in before:
        pattern = step.get("pattern")
        if step.get("type") != "Split" or step.get("behavior") != "Isolated" or step.get("invert"):
            return opaque
        if not isinstance(pattern, dict) or "Regex" not in pattern:
            return opaque
        patterns.append(_written(pattern["Regex"]))
    return _BY_PATTERNS.get(tuple(patterns), opaque)


def _written(pattern: str) -> str:
    """A pattern with its line ends escaped: both ways of writing them are in use, and mean the
    same.
    """
    return pattern.replace("\r", r"\r").replace("\n", r"\n")
