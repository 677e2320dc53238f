"""How text is split before merges apply: llama.cpp's names of pre-tokenizers beside what a tokenizer.json says.

Data, from llama-vocab.cpp, which quotes the pattern of the original tokenizer.json beside its own. Only names whose
original is quoted there, or is one component of the tokenizers library, stand here; any other is compared by its name
with other GGUF files and with nothing else. Nothing is guessed. Of each split llama.cpp (llama-cpp-python 0.3.36) and
the tokenizers library gave the same ids for every text that was tried, but of `tekken` (234 of 9,201 texts differ; in
the one that was looked at llama.cpp cuts before a combining mark).
"""

from __future__ import annotations

from typing import Any

from harness.tokenizer.digest import canonical_json

Component = dict[str, Any]

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+{_ENDS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD = r"[^\r\n\p{L}\p{N}]?"
_CASED = rf"{_WORD}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_WORD}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
_REST_OF_CASED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PUNCTUATED = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

PATTERNS: dict[str, tuple[str, ...]] = {
    "llama-3": (rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",),
    "qwen2": (rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|\p{{N}}|{_REST}",),
    "qwen35": (rf"{_CONTRACTIONS}|{_WORD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+{_ENDS}",),
    "tekken": (rf"{_WORD}{_UPPER}*{_LOWER}+|{_WORD}{_UPPER}+{_LOWER}*|\p{{N}}|{_REST_OF_CASED}",),
    "gpt-4o": (rf"{_CASED}|\p{{N}}{{1,3}}|{_REST_OF_CASED}",),
    "minicpm5": (r"\p{N}{1,3}", rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|\p{{N}}+|{_REST}"),
    "deepseek-v3": (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _PUNCTUATED),
    "seed-coder": (
        rf"{_CONTRACTIONS}|{_WORD}\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "bailingmoe": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "gpt-2": (GPT_2,),
}
"""The patterns that text is split at, one after the other, by the name that a split has here."""

_NAMES = {
    "llama-3": "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe "
    "chatglm-bpe glm4 glm5",
    "qwen2": "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
    "qwen35": "qwen35",
    "tekken": "tekken",
    "gpt-4o": "gpt-4o llama4 kanana2 talkie minimax-m2",
    "minicpm5": "minicpm5",
    "deepseek-v3": "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    "seed-coder": "seed-coder",
    "bailingmoe": "bailingmoe bailingmoe2 llada-moe",
    "gpt-2": "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt olmo jais "
    "trillion granite-docling exaone4",
    "digits, gpt-2": "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
}
SPLITS = {name: split for split, names in _NAMES.items() for name in names.split()}
"""The name that a split has here, by llama.cpp's name."""

_BY_PATTERNS = {patterns: split for split, patterns in PATTERNS.items()}


def split_of_pattern(pattern: str) -> str:
    """The name of the split at a lone pattern, or the pattern."""
    return _BY_PATTERNS.get((_written(pattern),), canonical_json({"pattern": _written(pattern)}))


def split_of_components(chain: list[Component]) -> str:
    """The name of the split that a chain of pre-tokenizers makes (`components.pre_tokenizer`), or the chain as JSON."""
    *before, last = chain or [{}]
    opaque = canonical_json(chain)
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return opaque
    if last.get("use_regex", True):
        digits = [{"type": "Digits", "individual_digits": True}]
        return "gpt-2" if not before else "digits, gpt-2" if before == digits else opaque
    patterns = []
    for one in before:
        pattern = one.get("pattern")
        if one.get("type") != "Split" or one.get("behavior") != "Isolated" or one.get("invert"):
            return opaque
        if not isinstance(pattern, dict) or "Regex" not in pattern:
            return opaque
        patterns.append(_written(pattern["Regex"]))
    return _BY_PATTERNS.get(tuple(patterns), opaque)


def _written(pattern: str) -> str:
    """A pattern with its line ends escaped: both ways of writing them are in use, and mean the same."""
    return pattern.replace("\r", r"\r").replace("\n", r"\n")
