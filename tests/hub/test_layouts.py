"""The layouts: deterministic, cached, and healthy tokenizers for the real transformers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.hub import Hub, HubError, parse_rules
from harness.hub.layouts import LAYOUTS, cached, repository_files, write


def load(hub: Hub, folder: Path, home: Path) -> dict[str, list[dict[str, object]]]:
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "HF_ENDPOINT": hub.endpoint_for("loader"),
        "HF_HOME": str(home),
        "LAYOUTS": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, str(Path(__file__).with_name("load_all.py"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.whole
def test_every_layout_loads_and_equals_its_folder(tmp_path: Path) -> None:
    """AutoTokenizer gets from the hub exactly what it gets from the folder without one, for every
    layout.
    """
    write(tmp_path / "layouts")
    with Hub(tmp_path / "layouts") as hub:
        found = load(hub, tmp_path / "layouts", tmp_path / "home")
        assert {line.client for line in hub.requests()} == {"loader"}
        assert len({line.pid for line in hub.requests()}) == 1
    assert set(found) == set(LAYOUTS)
    for name, (served, local) in found.items():
        assert served == local, name
        assert (
            served["round"]
            == [
                "Hello world, the rank is not this token",
                " leading  spaces\n\nand tabs\t",
            ]
            or name == "llama2"
        ), name
    assert found["glm45"][0]["length"] == 101_008
    assert found["llama2"][0]["class"] == "LlamaTokenizer"
    assert found["kimi"][0]["class"] == "TikTokenTokenizer"
    assert found["kimi"][0]["template"] != found["kimi@pinned"][0]["template"]
    assert set(found["templates"][0]["template"]) == {"default", "rag", "tool_use"}  # type: ignore[call-overload]


@pytest.mark.slow
@pytest.mark.whole
def test_one_404_makes_another_tokenizer(tmp_path: Path) -> None:
    """The layouts show what they are for: one 404 on tokenizer.model is a tokenizer of three
    tokens, and no error.
    """
    write(tmp_path / "layouts", ["llama2"])
    rules = parse_rules(
        "schema: 1\nrules:\n  - {id: gone, role: tokenizer.model, answer: {kind: missing}, when:"
        " {times: 1}}\n"
    )
    with Hub(tmp_path / "layouts", rules=rules) as hub:
        struck = load(hub, tmp_path / "layouts", tmp_path / "home")["llama2"]
        assert [line.file for line in hub.requests() if line.rules] == ["tokenizer.model"]
    assert [one["length"] for one in struck] == [3, 4000]
    # What makes it stick: the client wrote down that the file does not exist in this commit.
    assert "tokenizer.model" in {path.name for path in (tmp_path / "home").rglob(".no_exist/*/*")}


@pytest.mark.whole
def test_layouts_are_the_same_bytes_every_time() -> None:
    """The bytes of a layout follow from the code alone, hash seed included."""
    code = (
        "import hashlib; from harness.hub.layouts import LAYOUTS, repository_files\n"
        "for name in LAYOUTS:\n"
        "    for path, data in sorted(repository_files(name).items()):\n"
        "        print(name, path, hashlib.sha256(data).hexdigest())\n"
    )
    here = "".join(
        f"{name} {path} {hashlib.sha256(data).hexdigest()}\n"
        for name in LAYOUTS
        for path, data in sorted(repository_files(name).items())
    )
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert there.stdout == here


def test_the_cache_is_made_once_and_mended(tmp_path: Path) -> None:
    """The second call finds the first one's folder; a damaged one is made again.

    Names have their own folders.
    """
    place = cached(["gpt2-files"], cache=tmp_path)
    merges = place / "rankproof" / "gpt2-files" / "merges.txt"
    stamp, whole = merges.stat().st_mtime_ns, merges.read_bytes()
    assert cached(["gpt2-files"], cache=tmp_path) == place
    assert merges.stat().st_mtime_ns == stamp
    merges.write_bytes(whole[:-1])
    assert cached(["gpt2-files"], cache=tmp_path) == place
    assert merges.read_bytes() == whole
    assert cached(["templates"], cache=tmp_path) != place
    assert {path.name[0] for path in tmp_path.iterdir()} & {"."} == set()


def test_unknown_layouts_and_full_folders_are_errors(tmp_path: Path) -> None:
    """An unknown layout is named with those that there are; nothing is written over."""
    with pytest.raises(HubError, match="gpt2"):
        write(tmp_path, ["gpt3"])
    write(tmp_path, ["templates"])
    with pytest.raises(HubError, match="already exists"):
        write(tmp_path, ["templates"])
