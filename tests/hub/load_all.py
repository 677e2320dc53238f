"""Runs in a process of its own: loads layouts from the hub and from a folder, and prints what each
tokenizer is.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

TEXTS = [
    "Hello world, the rank is not this token",
    " leading  spaces\n\nand tabs\t",
    "你好世界。 日本語 🙂👩\u200d💻 café cafe\u0301",
    "don't I'LL 1234567 x==y/z //\r\n",
    "<|endoftext|><s></s>[BOS]<|im_end|>",
    "مرحبا ABCdefGHIjk HelloWorldFoo",
]


def facts(place: str, **options: Any) -> dict[str, Any]:
    from transformers import AutoTokenizer

    one = AutoTokenizer.from_pretrained(place, trust_remote_code=True, **options)
    template = one.chat_template
    return {
        "class": type(one).__name__,
        "length": len(one),
        "ids": [one.encode(text) for text in TEXTS],
        "round": [one.decode(one.encode(text, add_special_tokens=False)) for text in TEXTS[:2]],
        "special": [
            one.eos_token,
            one.bos_token,
            one.pad_token,
            one.model_max_length,
            one.padding_side,
        ],
        "template": template if isinstance(template, str | None) else dict(template),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    folder = Path(os.environ["LAYOUTS"])
    out = {}
    for place in sorted((folder / "rankproof").iterdir()):
        name, _, revision = place.name.partition("@")
        options = {"revision": revision} if revision else {}
        if place.name == "mistral":
            options["fix_mistral_regex"] = True  # type: ignore[assignment]
        local = {key: value for key, value in options.items() if key != "revision"}
        out[place.name] = [facts(f"rankproof/{name}", **options), facts(str(place), **local)]
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
