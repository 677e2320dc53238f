"""Counts of a tokenizer that is made here: each word is a token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.conformance.rows.row import Setting, texts
from harness.conformance.tokens import TokenCounts, TokenizerProblem

CHATML = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}{{ bos_token }} end"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))  # noqa: S106 - of a vocabulary
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def config(folder: Path, fields: dict[str, object]) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))


def test_chats_are_counted_as_their_template_renders_them(folder: Path) -> None:
    """In the file or in the field, with the tokens that the template names."""
    prompts = texts(Setting(model="m", seed=1, samples=False, tokens=None), 2)
    wanted = {prompt: [len(prompt.split()) + 3] for prompt in prompts}
    token = {"content": "<s>", "lstrip": False}
    for stated in (CHATML, [{"name": "default", "template": CHATML}]):
        config(folder, {"bos_token": token, "chat_template": stated})
        assert TokenCounts(folder).of_chats("m", 1) == wanted
    config(folder, {"bos_token": "<s>", "chat_template": "other"})
    (folder / "chat_template.jinja").write_text(CHATML)
    assert TokenCounts(folder).of_chats("m", 1) == wanted
    assert TokenCounts(folder).of_prompts("m", 1) == {p: [len(p.split())] for p in prompts}


@pytest.mark.parametrize(
    "template", [None, 7, "{% for %}", "{{ raise_exception('no') }}", "{{ ''.__class__.__mro__ }}"]
)
def test_without_a_template_that_renders_no_chats_are_counted(
    folder: Path, template: object
) -> None:
    """No template, none that is one, and one that leaves its sandbox."""
    config(folder, {"chat_template": template})
    assert TokenCounts(folder).of_chats("m", 1) is None


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """With what is missing."""
    pytest.importorskip("tokenizers")
    with pytest.raises(TokenizerProblem, match=r"cannot read its tokenizer\.json"):
        TokenCounts(tmp_path)
