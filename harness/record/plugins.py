"""Kinds that judge a run and that not every version has: plug-ins are named in its record, and
demanded of a verifier.

Without what is said of unknown kinds, a record from a newer version would read as if its signer had
changed it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from harness import backends, checks, faults, plugins
from harness.forms.digest import sha256
from harness.forms.document import parse_document
from harness.plugins import Plugin
from harness.record.facts import RunFacts
from harness.record.model import RecordError, Unknown
from harness.registry import Registry
from harness.scenario import Scenario, ScenarioError, override
from harness.subjects import READY

VIEWS = "rankproof.views"
SCHEMA = 1


def used(scenario: Scenario, *, views: Mapping[str, Plugin]) -> list[Plugin]:
    """Return the plug-ins that a run of a scenario uses, here and now.

    Args:
        scenario: what is run.
        views: the plug-ins' views that are written beside its report.
    """
    return sorted(
        {*_kinds(scenario), *views.values()}, key=lambda plugin: (plugin.group, plugin.name)
    )


def _kinds(scenario: Scenario) -> Iterator[Plugin]:
    named: tuple[tuple[Registry[Any], list[str | None]], ...] = (
        (faults.KINDS, [fault.kind for fault in scenario.faults]),
        (checks.KINDS, [check.kind for check in scenario.checks]),
        (backends.KINDS, list(scenario.matrix.backend)),
        (READY, [scenario.subject.use]),
    )
    for registry, names in named:
        yield from (registry.plugins[name] for name in names if name in registry.plugins)


def demand_installed(run: RunFacts) -> None:
    """Demand every plug-in of a run, in its version and with its files.

    Raises:
        Unknown: one is not here, or is another: what it judged cannot be judged again.
    """
    for facts in run.plugins:
        here = plugins.installed(facts.group, facts.name)
        if here is None:
            raise Unknown(
                f"it was judged by the plug-in {facts}, which is not installed on this machine"
            )
        if here.version != facts.version or here.distribution != facts.distribution:
            raise Unknown(
                f"it was judged by the plug-in {facts}, but {here.distribution} {here.version} is"
                " installed on this machine"
            )
        if here.sha256 != facts.sha256:
            raise Unknown(
                f"it was judged by the plug-in {facts}, but the files of the installed plug-in"
                " differ"
            )


def inside(run: RunFacts) -> frozenset[str]:
    """Digests of the files with which a run's plug-ins act in its ranks, as they are here: those of
    the digests named.

    Whoever judges the run has demanded the same plug-ins before.
    """
    files = [
        faults.KINDS[facts.name].inside_file for facts in run.plugins if _is_of(facts, faults.KINDS)
    ]
    files += [
        backends.KINDS[facts.name].inside_file
        for facts in run.plugins
        if _is_of(facts, backends.KINDS)
    ]
    return frozenset(sha256(file.read_bytes()) for file in files if file is not None)


def _is_of(facts: Plugin, registry: Registry[Any]) -> bool:
    return facts.group == registry.group and facts.name in registry.plugins


def demand_named(scenario: Scenario, run: RunFacts) -> None:
    """Demand that a run names the plug-ins that its scenario uses, and no others.

    Raises:
        RecordError: it does not.
    """
    wanted = {(plugin.group, plugin.name) for plugin in _kinds(scenario)}
    named = {(facts.group, facts.name) for facts in run.plugins if facts.group != VIEWS}
    if wanted != named:
        group, name = min(wanted ^ named)
        what = "uses but does not list" if (group, name) in wanted else "names but does not use"
        raise RecordError(f"the run {what} the plug-in {name} ({group})")
    if len(run.plugins) != len({(facts.group, facts.name) for facts in run.plugins}):
        raise RecordError("the run lists a plug-in twice")


def unknown_kinds(text: bytes, *, overrides: Sequence[str]) -> list[str]:
    """Every kind that a scenario names and this version does not know, in words.

    Empty where it cannot be read at all.

    Args:
        text: the scenario's file.
        overrides: what was given beside it.
    """
    try:
        document = parse_document(text, name="")
        override.apply(document, overrides)
    except ScenarioError:
        return []
    tree = document.tree
    return list(_unknown(tree)) if isinstance(tree, dict) else []


def _unknown(tree: dict[Any, Any]) -> Iterator[str]:
    schema = tree.get("schema")
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        yield f"schema {schema}"
    subject = tree.get("subject")
    matrix = tree.get("matrix")
    if isinstance(subject, dict):
        yield from _beyond("subject", [subject.get("use")], READY)
    if isinstance(matrix, dict):
        given = matrix.get("backend")
        yield from _beyond("backend", given if isinstance(given, list) else [given], backends.KINDS)
    for key, what, known in (("checks", "check", checks.KINDS), ("faults", "fault", faults.KINDS)):
        listed = tree.get(key)
        kinds = (
            [one.get("kind") for one in listed if isinstance(one, dict)]
            if isinstance(listed, list)
            else []
        )
        yield from _beyond(what, kinds, known)


def _beyond(what: str, named: Sequence[object], known: Collection[str]) -> Iterator[str]:
    unknown = {name for name in named if isinstance(name, str) and name not in known}
    return (f"{what} {name!r}" for name in sorted(unknown))
