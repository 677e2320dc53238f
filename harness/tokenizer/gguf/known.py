"""What engines know: the types of keys, the architectures, tokenizer models and pre-tokenizers.

Data, as of llama.cpp's llama-vocab.cpp and gguf's constants (0.19). Who meets a name that is not here says so and does
not guess: a pre-tokenizer that is taken for another one gives other ids for the same text.
"""

from __future__ import annotations

import re

TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
SCORES, MERGES = "tokenizer.ggml.scores", "tokenizer.ggml.merges"
MODEL, PRE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
TEMPLATE = "tokenizer.chat_template"
BPE, SPM, WPM, UGM = "gpt2", "llama", "bert", "t5"

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
WITHOUT = ("none", "no_vocab")
"""Names of `tokenizer.ggml.model` of a model that has no tokenizer."""

_IGNORE_MERGES = """
llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano youtu tekken minicpm5
granite-embed-multi-97m glm4 glm5
"""
_ADD_BOS = """
llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken chameleon
"""
_OTHERS = """
default deepseek-llm deepseek-coder deepseek-v3 falcon mpt starcoder gpt-2 phi-2 jina-es jina-de gigachat  jina-v2-es
jina-v2-de a.x-4.0 mellum modern-bert jais-2 gemma4 granite-embed-multi-311m sarvam-moe jina-v1-en  jina-v2-code
roberta-bpe whitespace refact command-r qwen2 deepseek-r1-qwen kormo f2llmv2 qwen35 stablelm2  olmo dbrx smaug-bpe
poro-chat chatglm-bpe viking jais smollm codeshell bloom gpt3-finnish exaone exaone4  exaone-moe minerva-7b
megrez gpt-4o llama4 kanana2 talkie tiny_aya cohere2moe superbpe trillion  granite-docling bailingmoe bailingmoe2
llada-moe seed-coder hunyuan hunyuan-dense joyai-llm hy_v4 spark2_5 ufakzeka kimi-k2 grok-2 afmoe laguna minimax-m2
solar-open mellum2
"""
_ARCHITECTURES = """
clip llama llama4 deci falcon baichuan grok gpt2 gptj gptneox mpt starcoder refact bert modern-bert nomic-bert
nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3  qwen3moe
qwen3next qwen3vl qwen3vlmoe qwen35 qwen35moe phi2 phi3 phimoe plamo plamo2 plamo3 codeshell orion  internlm2 minicpm
minicpm3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2 rwkv6 rwkv6qwen2 rwkv7  arwkv7 mamba mamba2
jamba xverse command-r cohere2 dbrx olmo olmo2 olmoe openelm arctic deepseek deepseek2  deepseek2-ocr chatglm glm4
glm4moe glm-dsa bitnet bitnet-b1.58 bitnet-25 t5 t5encoder jais jais2 nemotron  nemotron_h nemotron_h_moe exaone
exaone4 exaone-moe granite granitemoe granitehybrid chameleon wavtokenizer-dec  plm bailingmoe bailingmoe2 dots1 arcee
afmoe ernie4_5 ernie4_5-moe falcon-h1 hunyuan-moe hunyuan-dense hunyuan_vl  smollm3 gpt-oss lfm2 lfm2moe dream
smallthinker llada llada-moe seed_oss grovemoe apertus minimax-m2 cogvlm rnd1  pangu-embedded mistral3 mistral4
paddleocr mimo2 step35 llama-embed maincoder kimi-linear
"""
IGNORE_MERGES = frozenset(_IGNORE_MERGES.split())
"""Pre-tokenizers that take a word of the vocabulary whole, whatever its merges: GGUF has no key for it."""
ADD_BOS = frozenset(_ADD_BOS.split())
"""Those that put the beginning-of-sequence token first where `add_bos_token` does not say."""
PRE_TOKENIZERS = IGNORE_MERGES | ADD_BOS | frozenset(_OTHERS.split())
ARCHITECTURES = frozenset(_ARCHITECTURES.split())

_U32, _FLOAT, _TEXT, _FLAG = ("uint32",), ("float32",), ("string",), ("bool",)
# A count may be one number, or one for each layer.
_COUNTS = ("uint32", "array of uint32", "array of int32")
_PATTERNS = {
    r"general\.(architecture|name|type|author|version|organization|finetune|basename)": _TEXT,
    r"general\.(description|size_label|license)": _TEXT,
    r"general\.(alignment|quantization_version|file_type)": _U32,
    r"general\.(tags|languages)": ("array of string",),
    r"[^.]+\.(context_length|embedding_length|block_count|vocab_size|expert_count|expert_used_count)": _U32,
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
    """The types that engines read this key with; None for a key that is not known here."""
    return next((types for pattern, types in _KNOWN if pattern.fullmatch(key)), None)
