"""A runner of composite actions, as far as ours needs one: contexts, conditions, the files between
steps.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ACTION = Path(__file__).resolve().parents[2] / "action.yml"
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
_TOKEN = re.compile(r"'[^']*'|&&|\|\||==|!=|!|\(|\)|cancelled\(\)|always\(\)|[A-Za-z_][\w.-]*|\s+")
_WORDS = {"&&": " and ", "||": " or ", "!": " not ", "cancelled()": "False", "always()": "True"}


def action() -> dict[str, Any]:
    """`action.yml`, parsed."""
    parsed: dict[str, Any] = yaml.safe_load(ACTION.read_text())
    return parsed


@dataclass
class Runner:
    """Runs the steps of `action.yml` in order, in a checkout of a user's.

    Attributes:
        checkout: the user's repository, where steps start.
        temp: `RUNNER_TEMP`, kept between actions of one job.
        store: where artifacts are uploaded to, kept between jobs.
        github: what the contexts `github.…` hold.
        environ: the environment of the job.
        log: standard output and error of every step, by its name.
    """

    checkout: Path
    temp: Path
    store: Path
    github: Mapping[str, str]
    environ: Mapping[str, str]
    log: dict[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def run(self, *, leave_out: tuple[str, ...] = (), **inputs: str) -> bool:
        """Run the action with these inputs (`_` for `-`); whether the job goes on."""
        parsed = action()
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert given.keys() <= parsed["inputs"].keys()
        values = {name: given.get(name, one["default"]) for name, one in parsed["inputs"].items()}
        contexts = {f"inputs.{name}": value for name, value in values.items()}
        contexts |= {f"github.{name}": value for name, value in self.github.items()}
        self.temp.mkdir(exist_ok=True)
        good = True
        for step in parsed["runs"]["steps"]:
            condition = step.get("if", "${{ true }}")
            wanted = (
                good if "cancelled()" not in condition and "always()" not in condition else True
            )
            if step["name"] in leave_out or not (wanted and self._value(condition, contexts)):
                continue
            code = self._step(step, contexts)
            self.codes[step["name"]] = code
            good = good and code == 0
        self.outputs |= {
            name: str(self._value(one["value"], contexts) or "")
            for name, one in parsed["outputs"].items()
        }
        return good

    def _step(self, step: Mapping[str, Any], contexts: dict[str, str]) -> int:
        filled = {
            key: str(self._value(text, contexts)) for key, text in (step.get("with") or {}).items()
        }
        if "uses" in step:
            return (
                self._upload(filled)
                if "upload-artifact@" in step["uses"]
                else self._download(filled)
            )
        files = {
            name: self.temp / name
            for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")
        }
        for file in files.values():
            file.touch()
        path = os.pathsep.join(
            [*reversed(files["GITHUB_PATH"].read_text().split()), self.environ["PATH"]]
        )
        script = self.temp / "step.sh"
        script.write_text(str(self._value(step["run"], contexts)))
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.checkout,
            env={
                **self.environ,
                **{
                    name: str(self._value(text, contexts) or "")
                    for name, text in step["env"].items()
                },
                **{name: str(file) for name, file in files.items()},
                "PATH": path,
                "GITHUB_ACTIONS": "true",
                "GITHUB_ACTION_PATH": str(ACTION.parent),
                "GITHUB_RUN_ID": self.github["run_id"],
                "RUNNER_TEMP": str(self.temp),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, _, value = line.partition("=")
            contexts[f"steps.{step['id']}.outputs.{name}"] = value
        files["GITHUB_OUTPUT"].unlink()
        self.log[step["name"]] = done.stdout + done.stderr
        return done.returncode

    def _upload(self, given: Mapping[str, str]) -> int:
        place = self.checkout / given["path"]
        if place.exists():
            shutil.copytree(place, self.store / given["name"], symlinks=False)
        return 0

    def _download(self, given: Mapping[str, str]) -> int:
        for folder in self.store.glob(given["pattern"]):
            shutil.copytree(folder, self.checkout / given["path"] / folder.name)
        return 0

    def _value(self, text: object, contexts: Mapping[str, str]) -> object:
        """A text with its expressions filled in; what an expression alone comes to."""
        if not isinstance(text, str):
            return text
        if (whole := re.fullmatch(r"\$\{\{(.*)\}\}", text.strip())) and "${{" not in whole[1]:
            return _evaluated(whole[1], contexts)
        return _EXPRESSION.sub(lambda match: str(_evaluated(match[1], contexts)), text)


def _evaluated(expression: str, contexts: Mapping[str, str]) -> object:
    tokens = _TOKEN.findall(expression)
    assert "".join(tokens) == expression, f"this runner does not know all of {expression}"
    words = []
    for word in tokens:
        known = word.startswith("'") or word.isspace() or word in ("(", ")", "==", "!=")
        words.append(
            word if known else _WORDS.get(word) or repr(contexts.get(word, word == "true" or ""))
        )
    # Of action.yml's own expressions.
    return eval("".join(words).strip(), {"__builtins__": {}})  # noqa: S307
