"""Another scenario, other code, other inputs than the trials were made of."""

from __future__ import annotations

import re
import shutil

from harness.reason import RefusalWord
from tests.kit import forge
from tests.run.mutations.operators import (
    Copy,
    refused,
)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_weaker_bound_in_the_scenario(copy: Copy) -> None:
    path = copy.folder / forge.SCENARIO_PATH
    path.write_text(
        re.sub("failure_rate_below: [0-9]+%", "failure_rate_below: 99%", path.read_text())
    )


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_check_dropped_from_the_scenario(copy: Copy) -> None:
    copy.scenario("  - {id: ended, kind: exit, ranks: every, code: 0}\n", "")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_weaker_statement_of_how_the_control_fails(copy: Copy) -> None:
    copy.scenario(", error: AssertionError, source: assert thing}", "}")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def more_voids_allowed(copy: Copy) -> None:
    copy.scenario("trials: {", "trials: {max_voids: 9, ")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_root_of_the_seeds(copy: Copy) -> None:
    copy.scenario('seed: "7"', 'seed: "8"')


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_check_that_asks_one_rank_only(copy: Copy) -> None:
    copy.scenario("kind: equal, ranks: every", "kind: equal, ranks: [0]")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_question(copy: Copy) -> None:
    copy.scenario("Do all ranks meet?", "Is all well with every model?")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, removes=True)
def a_cell_dropped_from_the_scenario(copy: Copy) -> None:
    copy.scenario("flavour: [plain, salted]", "flavour: [plain]")
    copy.remove(1)
    forge.facts(copy.folder, cells=copy.facts["cells"][:1])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, removes=True)
def fewer_trials_in_the_scenario(copy: Copy) -> None:
    copy.scenario("candidate: 4, control: 3", "candidate: 3, control: 3")
    for path in (path for cell in range(2) for path in copy.trials(cell, "candidate")[-1:]):
        shutil.rmtree(path.parent)
    forge.facts(copy.folder, cells=[{**cell, "candidate": 3} for cell in copy.facts["cells"]])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_override(copy: Copy) -> None:
    forge.facts(copy.folder, overrides=[*copy.facts["overrides"], "trials.accept.confidence=50%"])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def an_override_left_out(copy: Copy) -> None:
    assert copy.facts["overrides"]
    forge.facts(copy.folder, overrides=[])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def code_of_the_arms_swapped(copy: Copy) -> None:
    one, other = (copy.folder / f"evidence/source/{arm}" for arm in ("candidate", "control"))
    one.rename(one.with_name("third"))
    other.rename(one)
    one.with_name("third").rename(other)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def other_code(copy: Copy) -> None:
    for arm in ("candidate", "control"):
        path = copy.folder / f"evidence/source/{arm}/subject.py"
        path.write_text(path.read_text() + "# reviewed\n")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_file_beside_the_code(copy: Copy) -> None:
    (copy.folder / "evidence/source/candidate/fix.py").write_text("FIXED = True\n")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def other_arguments(copy: Copy) -> None:
    copy.scenario("candidate: {with: {broken: false}}", "candidate: {with: {broken: 0}}")
    facts = copy.facts
    facts["arguments"]["candidate"] = {"broken": 0}
    forge.facts(copy.folder, arguments=facts["arguments"])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_input(copy: Copy) -> None:
    facts = copy.facts
    facts["inputs"][0]["digest"] = "0" * 64
    forge.facts(copy.folder, inputs=facts["inputs"])
