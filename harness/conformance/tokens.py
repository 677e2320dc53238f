"""How many tokens a model's own tokenizer makes of the prompts of a run, and of its chats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.conformance.rows.row import Setting, texts
from harness.forms.distribution import missing

TOKENIZED: Final = 2
NAMED: Final = ("bos_token", "eos_token", "pad_token", "unk_token")


class TokenizerProblem(Exception):
    """A tokenizer that cannot be read; the message says what to do."""


class TokenCounts:
    """Counts of one tokenizer's tokens, each without and with the special ones.

    Args:
        folder: with a tokenizer.json.

    Raises:
        TokenizerProblem: there is no tokenizer that can be read.
    """

    def __init__(self, folder: Path) -> None:
        if lacks := missing("tokenizers"):
            raise TokenizerProblem(f"--tokenizer: {lacks}")
        from tokenizers import Tokenizer

        self._folder = folder
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # noqa: BLE001 - the library raises nothing narrower
            raise TokenizerProblem(
                f"--tokenizer {folder}: cannot read its tokenizer.json ({error})"
            ) from None

    def of_prompts(self, model: str, seed: int) -> dict[str, list[int]]:
        """Count the tokens of the prompts of a run."""
        return {prompt: self._counts(prompt) for prompt in _prompts(model, seed)}

    def of_chats(self, model: str, seed: int) -> dict[str, list[int]] | None:
        """Count the tokens of the same prompts as chats of one message.

        None where the tokenizer has no chat template, or none that renders such a chat.
        """
        config = _json(self._folder / "tokenizer_config.json")
        source = _template(self._folder, config)
        if source is None or missing("jinja2"):
            return None
        counts: dict[str, list[int]] = {}
        for prompt in _prompts(model, seed):
            rendered = _rendered(source, config, prompt)
            if rendered is None:
                return None
            counts[prompt] = self._counts(rendered)
        return counts

    def _counts(self, text: str) -> list[int]:
        encode = self._tokenizer.encode
        return sorted(
            {len(encode(text, add_special_tokens=special).ids) for special in (False, True)}
        )


def _prompts(model: str, seed: int) -> list[str]:
    return texts(Setting(model=model, seed=seed, samples=False, tokens=None), TOKENIZED)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the chat template that a server uses by itself: the file goes before the field."""
    try:
        return (folder / "chat_template.jinja").read_text()
    except (OSError, ValueError):
        stated = config.get("chat_template")
    if isinstance(stated, list):
        named = {one.get("name"): one.get("template") for one in stated if isinstance(one, dict)}
        stated = named.get("default")
    return stated if isinstance(stated, str) else None


def _rendered(source: str, config: Mapping[str, Any], prompt: str) -> str | None:
    """Render a chat of one message as transformers does: in a sandbox, with the named tokens."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    tokens = {}
    for name in NAMED:
        stated = config.get(name)
        token = stated.get("content") if isinstance(stated, dict) else stated
        if isinstance(token, str):
            tokens[name] = token
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    messages = [{"role": "user", "content": prompt}]
    try:
        template = environment.from_string(source)
        return template.render(messages=messages, add_generation_prompt=True, **tokens)
    except Exception:  # noqa: BLE001 - whatever a template raises: it is not ours
        return None
