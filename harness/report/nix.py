"""The lines of the Environment section that say who made the environment, and how far Nix answers for it."""

from __future__ import annotations

from harness.forms.text import plural
from harness.record import facts
from harness.record.facts import Environment
from harness.report.blocks import Block, BulletList, Claim, Evidence, Foreign, Paragraph, Part, Text, Verbatim

RUN = Evidence(facts.PATH)


def made_by(here: Environment) -> str:
    """Who made the environment: Nix with its store path, or a lock with its sha256, or nobody knows."""
    lock = f"lock {here.lock}, sha256 {here.lock_sha256}" if here.lock else "made by hand, no lock"
    if here.nix is None:
        return f"no Nix: Python {here.python}, {lock}"
    how = "Nix shell" if here.nix.source is None else "nix run"
    return f"{how}, store path {here.nix.environment}; Python {here.python}, {lock}"


def nix_rows(here: Environment) -> list[tuple[Part, ...]]:
    """What the environment was built from, where Nix built it."""
    nix = here.nix
    if nix is None:
        return []
    parts: list[Part] = []
    if nix.flake_lock_sha256:
        parts += ["flake.lock sha256 ", Verbatim(nix.flake_lock_sha256), "; "]
    if nix.nixpkgs:
        parts += ["nixpkgs ", Verbatim(nix.nixpkgs), "; "]
    parts += ["wheels.json sha256 ", Verbatim(nix.wheels_sha256 or "unknown")]
    rows: list[tuple[Part, ...]] = [("Nix built it from", Claim(Text(*parts), (RUN,)))]
    if nix.shell:
        rows.append(("Nix shell, derivation", Claim(Foreign(nix.shell), (RUN,))))
    if nix.source:
        rows.append(("code, store path", Claim(Foreign(nix.source), (RUN,))))
    if here.variant == "cuda":
        rows.append(("NVIDIA driver, from the system", Claim(Foreign(", ".join(nix.driver) or "none found"), (RUN,))))
    return rows


def nix_warnings(here: Environment) -> list[Block]:
    """What makes the environment another one than the commit and its flake.lock stand for. Empty where nothing does."""
    nix = here.nix
    if nix is None:
        return []
    doubts: list[Part] = []
    if nix.as_locked is not True:
        doubts.append(
            "The nixpkgs that was used is not the one in flake.lock."
            if nix.as_locked is False
            else "It is unknown whether the nixpkgs that was used is the one in flake.lock."
        )
    if nix.stale:
        doubts.append(Foreign(f"Changed since the Nix shell was entered: {', '.join(nix.stale)}."))
    if nix.changed:
        doubts.append(
            Foreign(f"The flake is dirty, {plural(len(nix.changed), 'file')} changed: {', '.join(nix.changed)}.")
        )
    if nix.untracked:
        doubts.append(
            Foreign(
                f"Git does not know these files of the source, so Nix does not see them: {', '.join(nix.untracked)}."
            )
        )
    if nix.source is None and nix.changed is None:
        doubts.append("Git does not say whether the flake is as committed.")
    if not doubts:
        return []
    return [Paragraph("The commit and flake.lock alone do not give this environment:"), BulletList(tuple(doubts))]
