"""Inputs on a node: what a rank does to them there is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.record.facts import InputFacts
from harness.run.farm.agent import stands
from harness.run.farm.farm import FarmError, _demand_unchanged
from harness.run.inputs import ResolvedInput


@pytest.mark.parametrize("name", ["a/config.json", "b/config.json", "readme"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_a_rank_changes_or_removes(tmp_path: Path, name: str, gone: bool) -> None:
    """Each file counts, those of two folders that have one name too.

    A file that is gone was changed.
    """
    model, readme = tmp_path / "model", tmp_path / "model/readme"
    for folder in ("a", "b"):
        (model / folder).mkdir(parents=True)
        (model / folder / "config.json").write_text("{}")
    readme.write_text("read me")
    paths = {"model": model, "readme": readme}
    inputs = {
        called: ResolvedInput(path=path, facts=InputFacts.model_construct())
        for called, path in paths.items()
    }
    before = stands(inputs)
    assert stands(inputs) == before
    assert len(before) == 4
    if gone:
        (model / name).unlink()
    else:
        (model / name).write_text("other")
    now = stands(inputs)
    changed = {one for one in {*now, *before} if now.get(one) != before.get(one)}
    assert changed == {f"model/{name}", *(["readme"] if name == "readme" else [])}


@pytest.mark.parametrize("told", [{}, {"changed": None}, {"changed": ["model/config.json"]}])
def test_a_trial_of_which_an_input_was_changed_ends_the_run(told: dict[str, object]) -> None:
    """With each trial a node says whether an input was changed there: one that is lost later says
    it of none.
    """
    with pytest.raises(FarmError, match=r"a rank changed .* on its node"):
        _demand_unchanged(told)
    _demand_unchanged({"changed": []})
