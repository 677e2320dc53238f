"""Hostfiles are read as their makers write them, and nothing in one can become an option of ssh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.forms.problem import ScenarioError
from harness.world.starters.hostfile import NAME, Machine, read


def written(folder: Path, text: str) -> Path:
    path = folder / "hosts"
    path.write_text(text)
    return path


def test_lines(tmp_path: Path) -> None:
    """A name a line, with slots where there are several; comments and empty lines are nothing."""
    found = read(
        written(
            tmp_path,
            "# ours\nnode-1 slots=2\n\nuser@10.0.0.2  # one slot\nnode-3 slots=4 max_slots=8\n",
        )
    )
    assert [(one.name, one.slots) for one in found] == [
        ("node-1", 2),
        ("user@10.0.0.2", 1),
        ("node-3", 4),
    ]


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_json_of_mlx(tmp_path: Path, wrapped: bool) -> None:
    """Both forms of mlx.launch's hostfile are read, and a host that stands twice has two slots."""
    hosts = [
        {"ssh": "a", "ips": ["10.0.0.1"], "rdma": [None]},
        {"ssh": "b"},
        {"ssh": "a", "ips": ["10.0.1.1"]},
    ]
    whole = {"backend": "ring", "envs": [], "hosts": hosts} if wrapped else hosts
    found = read(written(tmp_path, json.dumps(whole)))
    assert found == (
        Machine(name="a", slots=2, addresses=("10.0.0.1", "10.0.1.1")),
        Machine(name="b", slots=1, addresses=()),
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("-oProxyCommand=reboot", "option|not a name"),
        ('[{"ssh": "-oProxyCommand=reboot"}]', "not a name"),
        ("a;reboot", "not a name"),
        ("node-1 slots=0", "slots must be between 1 and"),
        ("node-1 slots=99999", "slots must be between 1 and"),
        ("node-1 slot=2", "only slots=N"),
        ("# nothing", "lists no machines"),
        ("", "lists no machines"),
        ("[1]", "each host needs a name"),
        ('{"hosts": 3}', "no list of hosts"),
        ("{", "begins like JSON, but is not"),
        ('[{"ssh": "a", "ips": "10.0.0.1"}]', "list of addresses"),
        ("\n".join(f"node-{number}" for number in range(1100)), "at most 1024"),
    ],
)
def test_what_is_not_one_is_refused(tmp_path: Path, text: str, word: str) -> None:
    """Each mistake is named with its line, and no name that ssh would take as an option passes."""
    with pytest.raises(ScenarioError, match=word):
        read(written(tmp_path, text))


@given(st.text(max_size=20))
def test_no_name_is_an_option_or_two_words(name: str) -> None:
    """Whatever passes as a name is one word for ssh, and never an option."""
    if NAME.fullmatch(name):
        assert not name.startswith("-")
        assert len(name.split()) == 1
