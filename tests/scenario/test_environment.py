"""Environments of arms: exact versions, one name for a package, and which arm runs in which."""

from __future__ import annotations

import pytest

from harness.forms.distribution import normal
from harness.scenario import Environment, ScenarioError, parse_scenario
from harness.scenario.environment import Checkout, satisfies

SCENARIO = """\
schema: 1
id: two-versions
title: Two versions
question: Do they differ?
subject:
  entry: subject:check
  SUBJECT
  candidate: {CANDIDATE}
  control: {CONTROL, must_fail: {check: ran, ranks: every}}
matrix: {ranks: [2], backend: [none]}
seed: "1"
checks: [{id: ran, kind: event, ranks: every, event: ran}]
"""


def text(*, subject: str = "path: .", candidate: str = "", control: str = "with: {}") -> bytes:
    return (
        SCENARIO.replace("SUBJECT", subject)
        .replace("CANDIDATE", candidate)
        .replace("CONTROL", control)
        .encode()
    )


def messages(given: bytes, overrides: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with a scenario, notes left out."""
    try:
        parse_scenario(given, name="s.yaml", overrides=overrides)
    except ScenarioError as error:
        return [
            f"{problem.key}: {problem.message}"
            for problem in error.problems
            if problem.kind != "note"
        ]
    return []


def test_an_arms_environment_takes_the_place_of_the_subjects() -> None:
    """The subject's holds for both arms; an arm's own replaces all of it."""
    given = text(
        subject='environment: {python: "3.13", packages: {Zope.Interface: "5.0"}}',
        control='environment: {packages: {zope-interface: "4.0"}}',
    )
    subject = parse_scenario(given, name="s.yaml").subject
    assert subject.control is not None
    assert subject.environment_of(subject.candidate) == Environment(
        python="3.13", packages={"zope-interface": "5.0"}
    )
    assert subject.environment_of(subject.control) == Environment(
        packages={"zope-interface": "4.0"}
    )


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ("{}", "environment: is empty"),
        ("{python: 3.13}", "environment.python: must be a string; put it in quotes"),
        ('{python: "3.10"}', "Python 3.11 or newer"),
        ('{python: ">=3.12"}', "Python 3.11 or newer"),
        ("{packages: {it: 1.0}}", "environment.packages.it: must be a string; put it in quotes"),
        ('{packages: {it: "1.*"}}', "one exact version"),
        ('{packages: {it: ">=1"}}', "one exact version"),
        ('{packages: {it: "latest"}}', "one exact version"),
        ('{packages: {it: "1 --index-url=x"}}', "one exact version"),
        ('{packages: {"-r": "1"}}', "must be the name of a package"),
        ('{packages: {"it[": "1"}}', "must be the name of a package"),
        ('{packages: {"it[]": "1"}}', "must be the name of a package"),
        ('{packages: {"it[a,,b]": "1"}}', "must be the name of a package"),
        ('{packages: {"it[a] @ file:///x": "1"}}', "must be the name of a package"),
        ('{packages: {it: "1", "it[cpu]": "1"}}', "is listed twice"),
        ("{packages: {it: [1]}}", "environment.packages.it: must be a string"),
        ("{packages: {it: {rev: v1}}}", "environment.packages.it.path: is missing; add it here"),
        (
            "{packages: {it: {path: ../it, rv: v1}}}",
            "environment.packages.it.rv: is not a known key here",
        ),
        ("{packages: {it: {path: /it}}}", "must be a path relative to the scenario's folder"),
        ('{packages: {it: {path: ../it, rev: "--all"}}}', "must not begin with a hyphen"),
        (
            '{requirements: r.txt, packages: {it: "1"}}',
            "contains it, but when `requirements` is set, `packages` may contain only checkouts",
        ),
        ("{requirements: ../r.txt}", "must stay inside the scenario's folder"),
        ('{packages: {torch: "2.13.0"}, torch: cuda}', "environment.torch: must be cpu or any"),
        ("{torch: cpu}", "is empty"),
        ('{packages: {"it @ file:///x": "1"}}', "must be the name of a package"),
        ('{packages: {hf_hub: "1", hf-hub: "2"}}', "is listed twice"),
        ('{pakages: {it: "1"}}', "known key"),
    ],
)
def test_what_is_not_exact_is_refused(environment: str, why: str) -> None:
    """A version is one version, a name is a name, and nothing of either reaches pip as an
    option.
    """
    (found,) = messages(text(control=f"environment: {environment}"))
    assert why in found


@pytest.mark.parametrize(
    "version", ["1", "5.5.0", "1!2.0", "2.0rc1", "1.0.post1", "1.0.dev3", "2.13.0+cpu"]
)
def test_every_form_of_a_version_is_understood(version: str) -> None:
    """Epochs, pre-, post- and development releases and local versions are exact versions too."""
    assert not messages(text(control=f'environment: {{packages: {{it: "{version}"}}}}'))


def test_an_environment_alone_sets_the_arms_apart() -> None:
    """Arms with the same code and arguments must differ in their environments, however these are
    written.
    """
    own = 'environment: {packages: {hf_hub: "1.0"}}'
    assert not messages(text(control=own))
    (found,) = messages(text(candidate=own, control=own.replace("hf_hub", "HF-Hub")))
    assert "runs the same code with the same arguments as the candidate" in found
    assert "or the same code in another environment" in found
    (found,) = messages(text(subject=own, control=own))
    assert "runs the same code" in found


def test_an_override_of_a_version_is_a_text() -> None:
    """`--set` takes versions as they stand: 5.10 is not 5.1, and needs no quotes."""
    given = text(control='environment: {packages: {it: "1.0"}}')
    overrides = (
        "subject.control.environment.packages.it=5.10",
        "subject.control.environment.python=3.13",
        "subject.environment.packages.other=2",
    )
    subject = parse_scenario(given, name="s.yaml", overrides=overrides).subject
    assert subject.control is not None
    assert subject.control.environment == Environment(python="3.13", packages={"it": "5.10"})
    assert subject.environment == Environment(packages={"other": "2"})


def test_an_override_finds_the_package_as_the_file_writes_it() -> None:
    """Its extras stay, another spelling is the same package, a revision is a text, a checkout can
    be given whole.
    """
    given = text(
        control='environment: {packages: {"MLX[cpu]": "1.0", own: {path: ../own}, more: "1"}}'
    )
    place = "subject.control.environment.packages"
    overrides = (
        f"{place}.mlx=0.30",
        f"{place}.own.rev=7254e20",
        f"{place}.more={{path: ../more, rev: v1}}",
    )
    subject = parse_scenario(given, name="s.yaml", overrides=overrides).subject
    assert subject.control is not None
    assert subject.control.environment is not None
    assert subject.control.environment.packages == {
        "mlx[cpu]": "0.30",
        "own": Checkout(path="../own", rev="7254e20"),
        "more": Checkout(path="../more", rev="v1"),
    }


def test_programs_have_no_environment() -> None:
    """A program brings its own interpreter: an environment would say what is not so."""
    given = text(control='environment: {packages: {it: "1"}}').replace(
        b"entry: subject:check", b"program: [sh, x.sh]"
    )
    (found,) = messages(given)
    assert found.startswith("subject.control.environment: is only for Python subjects")


def test_names_and_versions_are_compared_by_meaning() -> None:
    """Case and separators make no other package, trailing zeros no other version."""
    assert normal("Zope._Interface") == "zope-interface"
    assert satisfies("5.5", "5.5.0")
    assert satisfies("1.0rc1", "1.0.0rc1")
    assert satisfies("2024.01.05", "2024.1.5")
    assert satisfies("2.13.0+cpu", "2.13.0")
    assert not satisfies("2.13.0", "2.13.0+cpu")
    assert not satisfies("5.5", "5.50")
    assert not satisfies("1.0", "1.0.post1")


def test_what_is_not_there_is_named_with_what_was_asked_for() -> None:
    """Each word tells the package, the version that was asked for, and the one that is there."""
    asked = Environment(
        python="3.13", packages={"it[x]": "1.0", "own": Checkout(path="../own")}, torch="cpu"
    )

    def unmet(python: str = "3.13.2", **packages: str) -> list[str]:
        return list(asked.unmet(python=python, packages=packages))

    assert unmet(it="1", own="0") == []
    assert unmet("3.1", it="1", own="0") == ["Python 3.13 is required, but 3.1 is installed"]
    assert unmet(it="1.1", own="0") == ["it 1.0 is required, but 1.1 is installed"]
    assert unmet() == [
        "it 1.0 is required, but it is not installed",
        "own is required from a checkout, but own is not installed",
    ]
    assert unmet(it="1", own="0", torch="2.13.0+cpu", numpy="2") == []
    brought = {
        "torch": "2.14.1",
        "nvidia-cublas": "13",
        "triton": "3",
        "cuda-toolkit": "13",
        "nvidia-nvtx": "1",
    }
    assert unmet(it="1", own="0", **brought) == [
        (
            "torch for the CPU is required, but cuda-toolkit 13, nvidia-cublas 13, nvidia-nvtx 1"
            " and 1 more is installed"
        )
    ]
    assert unmet(it="1", own="0", torch="2.13.0+cu126") == [
        "torch for the CPU is required, but torch 2.13.0+cu126 is installed"
    ]
    del brought["torch"]
    assert unmet(it="1", own="0", **brought) == []


def test_extras_are_written_in_one_way() -> None:
    """Case, order and separators of extras make no other environment; other extras do."""
    assert Environment(packages={"MLX[CPU, b_c,b-c]": "1"}) == Environment(
        packages={"mlx[b-c,cpu]": "1"}
    )
    assert Environment(packages={"mlx[cpu]": "1"}) != Environment(packages={"mlx": "1"})
    assert Environment(packages={"mlx[cpu]": "1"}).versions == {"mlx": "1"}
