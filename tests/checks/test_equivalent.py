"""`equivalent`: a run is what the whole model computes, but for noise.

Whatever is not that is not equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.checks.equivalent import EquivalentCheck, parity_of
from harness.numeric.envelope import Departure, Envelope, Slack, ValuePlace
from harness.numeric.needles import Needles
from tests.checks.worlds import CHECK as CHECKS
from tests.checks.worlds import NOISE, Reference, judged, noted

CHECK = {"kind": "equivalent"}


def one(kept: Any, **more: Any) -> tuple[bool, str, bool]:
    """What the check says of rank 1, whose files these are, beside a rank 0 that computes the same
    as the reference.
    """
    reference = Reference()
    part = judged(CHECK, reference, [reference.answer, kept], **more).ranks[1]
    return part.passed, part.reason or str(part.observed), part.uncompared


def changed(name: str, change: Callable[[Any], Any]) -> dict[str, Any]:
    """The right answer but for one array."""
    answer = Reference().answer
    return {**answer, name: change(answer[name].copy())}


def add(size: float, *place: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[place] += size
        return array

    return change


def test_the_same_bits_are_identical_and_noise_is_equivalent() -> None:
    """Both words say how many positions of each phase were judged, and how near."""
    assert one(Reference().answer) == (
        True,
        "IDENTICAL: 14 prefill positions and 8 decode positions bit-identical",
        False,
    )
    near = {name: values + np.float32(NOISE) for name, values in Reference().answer.items()}
    passed, said, _ = one(near)
    assert passed
    assert said.startswith("EQUIVALENT: 14 prefill positions off by at most 1")


@pytest.mark.parametrize(
    ("name", "place", "size", "says"),
    [
        (
            "prefill.logits.1",
            (3, 2),
            1e-3,
            "DIVERGENT: prefill logits off by 0.001 at position 3 of prompt 1",
        ),
        (
            "decode.logits.0",
            (2, 0),
            0.5,
            "DIVERGENT: decode logits off by 0.5 at position 2 of prompt 0",
        ),
        (
            "decode.logits.0",
            (2, 0),
            np.nan,
            "DIVERGENT: decode logits not finite at position 2 of prompt 0",
        ),
        (
            "decode.logits.0",
            (2, 0),
            -np.inf,
            "DIVERGENT: decode logits not finite at position 2 of prompt 0",
        ),
    ],
)
def test_one_number_beyond_noise_is_divergent_and_named(
    name: str, place: Any, size: float, says: str
) -> None:
    """Prefill and decode apart, with the prompt and position; NaN and infinities too."""
    passed, said, uncompared = one(changed(name, add(size, *place)))
    assert (passed, uncompared) == (False, False)
    assert said.startswith(says)


def test_a_little_everywhere_is_seen_though_no_position_is_beyond_the_worst() -> None:
    """The middle distance is judged beside the largest one."""
    reference = Reference()
    for name in [name for name in reference.kept if name.startswith("envelope.0.prefill.logits.0")]:
        reference.kept[name][0] += np.float32(1e-3)  # one position of the reference is very noisy
    near = {name: values + np.float32(2e-5) for name, values in reference.answer.items()}
    part = judged(CHECK, reference, [near]).ranks[0]
    assert "prefill logits off by 2e-05 or more at half of 14 positions" in part.reason


def test_of_many_positions_the_middle_may_lie_little_further_than_the_variants_do() -> None:
    """Two heads swapped in the last layer lie between once and twice the envelope in bfloat16, and
    noise below 0.9.
    """
    few, many = (
        Envelope(variants=3, positions=count, apart=0, half=1.0, most=4.0) for count in (15, 16)
    )
    assert [few.allows(Slack(2.0, 1.25)), many.allows(Slack(2.0, 1.25))] == [
        (2.0, 8.0),
        (1.25, 8.0),
    ]
    assert many.allows(Slack(2.0)) == (2.0, 8.0)
    place = ValuePlace(prompt=0, position=0)
    moved = Departure(
        positions=16,
        identical=False,
        differing=16,
        half=1.5,
        most=5.0,
        most_at=place,
        beyond=0,
        first=None,
    )
    assert moved.times(many, Slack(2.0, 1.25)) == 1.2  # 1.5 of 1.25


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda kept: kept | {"prefill.logits.0": kept["prefill.logits.0"].astype("float64")},
            "is float64 [5, 12], but",
        ),
        (
            lambda kept: kept | {"prefill.logits.0": kept["prefill.logits.0"][:4]},
            "is float32 [4, 12], but float32 [5, 12]",
        ),
        (
            lambda kept: {name: one for name, one in kept.items() if name != "decode.logits.1"},
            "was not kept on both sides",
        ),
        (
            lambda kept: kept | {"decode.logits.2": kept["decode.logits.1"]},
            "decode.logits.2 was not kept on both sides",
        ),
        (lambda kept: kept | {"prefill.logits.0": b"noise"}, "not in NumPy's .npy format"),
    ],
)
def test_another_shape_dtype_or_nothing_is_never_equal(change: Any, says: str) -> None:
    """What cannot be held against the reference fails, with what is the matter."""
    passed, said, _ = one(change(Reference().answer))
    assert not passed
    assert says in said


def test_tokens_agree_on_every_rank_at_every_step() -> None:
    """One other token on one rank is named with step and prompt, on both, whatever the logits
    are.
    """
    reference = Reference()
    other = [
        ("generated", {"prompt": 0, "ids": [1, *reference.events[0][1]["ids"][1:]]}),
        reference.events[1],
    ]
    found = judged(CHECK, reference, [reference.answer] * 2, said=[reference.events, other])
    assert [part.passed for part in found.ranks] == [False, False]
    assert "at step 0 of prompt 0 it generated token" in found.ranks[1].reason
    found = judged(
        CHECK, reference, [reference.answer] * 3, said=[reference.events, other, reference.events]
    )
    assert [part.passed for part in found.ranks] == [True, False, True]


def test_all_ranks_with_the_same_wrong_token_are_divergent() -> None:
    """Ranks that agree on what the reference did not choose, by more than noise, are wrong
    together.
    """
    reference = Reference()
    wrong = [
        (name, {**values, "ids": [(values["ids"][0] + 1) % 12, *values["ids"][1:]]})
        for name, values in reference.events
    ]
    found = judged(CHECK, reference, [reference.answer] * 2, said=[wrong] * 2)
    assert all(
        "generated a different token from the reference; the reference scores that token"
        in part.reason
        for part in found.ranks
    )


@pytest.mark.parametrize(
    "said", [[], [("generated", {"prompt": 0, "ids": None})], [("generated", {"prompt": 0})]]
)
def test_no_token_is_not_agreement(said: Any) -> None:
    """Null, nothing and what is not a list of tokens are those of nobody."""
    reference = Reference()
    assert not judged(CHECK, reference, [reference.answer] * 2, said=[said, said]).passed


def test_a_rank_without_logits_is_judged_by_its_tokens_and_says_so() -> None:
    """An inner stage of a pipeline passes by them, if another rank has logits.

    A world without any does not.
    """
    reference = Reference()
    found = judged(CHECK, reference, [{}, reference.answer])
    assert found.passed
    assert found.ranks[0].observed == "EQUIVALENT by 10 tokens alone, because it kept no logits"
    assert not judged(CHECK, reference, [{}, {}]).passed


def test_positions_behind_an_undecided_router_are_counted_apart() -> None:
    """From the first near tie of a prompt on nothing is judged, in its decoding too.

    The reference alone says where.
    """
    reference = Reference()
    for prefix in ("", "envelope.0.", "envelope.1."):
        for name in [name for name in reference.answer if ".logits." in name]:
            gaps = np.ones(len(reference.answer[name]), "float32")
            if name == "prefill.logits.1":
                gaps[4] = 1e-9 if not prefix else 1e-8
            reference.kept[prefix + name.replace("logits", "router")] = gaps
    answer = dict(reference.answer)
    answer["prefill.logits.1"] = answer["prefill.logits.1"].copy()
    answer["prefill.logits.1"][4:] += 1
    part = judged(CHECK, reference, [answer]).ranks[0]
    assert (
        part.observed == "IDENTICAL: 9 prefill positions (5 skipped, a router was undecided) and "
        "4 decode positions (4 skipped, a router was undecided) bit-identical"
    )
    answer["prefill.logits.1"][3:] += 1
    assert not judged(CHECK, reference, [answer]).passed


@pytest.mark.filterwarnings("error")
def test_no_position_is_undecided_where_there_is_no_router() -> None:
    """An infinite gap on both sides: nothing is counted apart, and nothing is subtracted from
    infinity.
    """
    reference = Reference()
    for name in [name for name in reference.answer if "logits" in name]:
        for prefix in ("", "envelope.0.", "envelope.1."):
            gaps = np.full(len(reference.kept[name]), np.inf, "float32")
            reference.kept[prefix + name.replace("logits", "router")] = gaps
    found = str(judged(CHECK, reference, [reference.answer]).ranks[0].observed)
    assert found == "IDENTICAL: 14 prefill positions and 8 decode positions bit-identical"


def test_what_a_router_did_behind_a_tie_is_not_noise_of_what_comes_before() -> None:
    """Behind the first tie gaps are of another sequence of experts: the positions before it are
    judged all the same.
    """
    reference = Reference()
    for prefix in ("", "envelope.0.", "envelope.1."):
        for name in [name for name in reference.answer if ".logits." in name]:
            gaps = np.full(len(reference.answer[name]), 0.1 if not prefix else 0.101, "float32")
            if name == "prefill.logits.1":
                gaps[6:] = 1e-4 if not prefix else 3.0
            reference.kept[prefix + name.replace("logits", "router")] = gaps
    found = judged(CHECK, reference, [reference.answer]).ranks[0].observed
    assert found is not None
    assert found.startswith(
        "IDENTICAL: 11 prefill positions (3 skipped, a router was undecided) and 4 decode positions"
    )


def test_the_first_layer_that_differs_is_named() -> None:
    """Parts of a layer come before what leaves it, and are held against the noise of their own."""
    reference = Reference()
    for place in ("0.attention", "0", "1.attention", "1"):
        state = np.ones((9, 6), "float32")
        reference.kept[f"hidden.{place}.1"] = state
        reference.kept[f"envelope.0.hidden.{place}.1"] = state + np.float32(NOISE)
    answer = {
        name: values.copy()
        for name, values in reference.kept.items()
        if not name.startswith("envelope")
    }
    answer["hidden.1.attention.1"][6, 2] += 1
    answer["hidden.1.1"][6, 2] += 1
    answer["prefill.logits.1"][6] += 1
    reason = judged(CHECK, reference, [answer]).ranks[0].reason
    assert "first in layer 1, attention at position 6 of prompt 1 (1, allowed 1.91e-06)" in reason


def with_layers(answer_of: dict[str, float]) -> tuple[Reference, dict[str, Any]]:
    """A reference with hidden states of two layers and a part, and an answer in which these are so
    much off.
    """
    reference = Reference()
    for place in ("0.attention", "0", "1"):
        state = np.zeros((9, 6), "float32")
        reference.kept[f"hidden.{place}.1"] = state
        reference.kept[f"envelope.0.hidden.{place}.1"] = state + np.float32(NOISE)
        reference.kept[f"sensitivity.0.hidden.{place}.1"] = state + np.float32(0.5)
    answer = {
        name: values.copy()
        for name, values in reference.kept.items()
        if name.startswith(("p", "d", "hidden"))
    }
    for place, size in answer_of.items():
        answer[f"hidden.{place}.1"][4, 3] += np.float32(size)
    return reference, answer


def test_hidden_states_are_judged_by_themselves_where_that_is_asked() -> None:
    """What 16 bits hide in the logits shows in a part of a layer.

    Within its own noise it is none.
    """
    reference, answer = with_layers({"0.attention": 2.5 * NOISE})
    assert judged(CHECK, reference, [answer]).passed
    told = judged({**CHECK, "layers": 3}, reference, [answer])
    assert told.passed
    assert "; hidden states at most 0.83 times the noise limit" in str(told.ranks[0].observed)
    told = judged({**CHECK, "layers": 2}, reference, [answer])
    assert told.ranks[0].reason.startswith(
        "DIVERGENT: hidden states are up to 1.25 times the noise limit, and logits"
    )
    assert "first in layer 0, attention at position 4 of prompt 1" in told.ranks[0].reason


def test_a_rank_without_logits_is_judged_by_its_hidden_states() -> None:
    """The first stage of a pipeline has no logits, and what leaves its layers says whether it
    computed the same.
    """
    reference, answer = with_layers({"0": 0.5})
    first = {name: values for name, values in answer.items() if name.startswith("hidden.0")}
    last = reference.answer | {"hidden.1.1": answer["hidden.1.1"]}
    assert [part.passed for part in judged(CHECK, reference, [first, last]).ranks] == [True, True]
    told = judged({**CHECK, "layers": 3}, reference, [first, last])
    assert [part.passed for part in told.ranks] == [False, True]
    whole = {
        name: values for name, values in with_layers({})[1].items() if name.startswith("hidden.0")
    }
    told = judged({**CHECK, "layers": 3}, reference, [whole, last])
    assert str(told.ranks[0].observed).startswith(
        "EQUIVALENT by 10 tokens and 2 hidden states, because it kept no logits"
    )


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        (
            lambda name: not name.startswith("hidden"),
            "no rank kept 3 arrays that the reference kept",
        ),
        (
            lambda name: not name.startswith("hidden.0.attention"),
            "no rank kept 1 array that the reference kept",
        ),
    ],
)
def test_hidden_states_that_nobody_kept_are_not_judged(kept: Any, says: str) -> None:
    """Asked to judge layers, whoever keeps none of them, or one less than the reference, shows
    nothing.
    """
    reference, answer = with_layers({})
    part = judged(
        {**CHECK, "layers": 3}, reference, [{name: answer[name] for name in answer if kept(name)}]
    ).ranks[0]
    assert (part.passed, part.uncompared, part.reason) == (False, True, says)


def test_a_reference_that_kept_no_hidden_states_judges_none() -> None:
    """`layers` without anything to judge is not a PASS."""
    reference = Reference()
    part = judged({**CHECK, "layers": 3}, reference, [reference.answer]).ranks[0]
    assert (part.passed, part.uncompared) == (False, True)
    assert part.reason.startswith("no hidden state was kept on both sides")


def test_an_account_whose_layer_is_taken_out_contradicts_itself() -> None:
    """The layer that is off, and how far it is: one without the other was written by nobody."""
    reference, answer = with_layers({"0": 0.5})

    def calm(values: dict[str, Any]) -> dict[str, Any]:
        values["account"]["ranks"][0]["layer"] = None
        return values

    part = judged({**CHECK, "layers": 3}, reference, [answer], change=calm).ranks[0]
    assert (part.passed, part.uncompared) == (False, True)
    assert "a layer is off, but not named" in part.reason


def told_to_routers(*, scores: float = 0.0) -> tuple[Reference, dict[str, Any]]:
    """A reference whose routers are told what to take, and an answer of which one score is this
    much higher.
    """
    reference = Reference()
    state = np.linspace(0, 1, 54, dtype="float32").reshape(9, 6)
    reference.kept["hidden.2.router.1"] = state
    reference.kept["envelope.0.hidden.2.router.1"] = state + np.float32(NOISE)
    answer = {
        name: values.copy()
        for name, values in reference.kept.items()
        if not name.startswith("envelope")
    }
    answer["hidden.2.router.1"][4, 3] += np.float32(scores)
    return reference, answer


def test_a_router_that_is_told_what_to_take_is_judged_by_its_scores() -> None:
    """The logits are the reference's, for its experts were taken.

    That it would have chosen others is divergent.
    """
    reference, answer = told_to_routers(scores=NOISE)
    assert judged(CHECK, reference, [answer]).passed
    reference, answer = told_to_routers(scores=0.5)
    part = judged(CHECK, reference, [answer]).ranks[0]
    assert not part.passed
    assert part.reason.startswith(
        "DIVERGENT: a router makes a different choice, which noise does not explain; first in layer 2"
    )


def test_a_router_that_nobody_shows_is_not_compared() -> None:
    """A reference whose routers were told, and ranks that keep no scores of theirs: that is not
    agreement.
    """
    reference, answer = told_to_routers()
    del answer["hidden.2.router.1"]
    part = judged(CHECK, reference, [answer, answer]).ranks[1]
    assert (part.passed, part.uncompared) == (False, True)
    assert part.reason == "no rank kept 1 array of scores that the reference's routers kept"


def forged(change: Callable[[dict[str, Any]], None]) -> Any:
    def forge(values: dict[str, Any]) -> dict[str, Any]:
        change(values)
        return values

    return forge


def calmed(values: dict[str, Any]) -> None:
    for rank in values["account"]["ranks"]:
        rank["phases"]["prefill"]["beyond"] = 0


@pytest.mark.parametrize(
    "change",
    [
        calmed,
        lambda values: values.pop("account"),
        lambda values: values["files"].pop("1/prefill.logits.0"),
        lambda values: values["account"]["ranks"].pop(),
        lambda values: values["account"]["ranks"][1].update(keeps=None),
        lambda values: values.update(check="other"),
    ],
)
def test_an_account_that_is_not_one_passes_nobody(change: Any) -> None:
    """Numbers that contradict each other, files that are not those that were kept, no account at
    all.
    """
    reference = Reference()
    answers = [reference.answer, changed("prefill.logits.1", add(1.0, 3, 2))]
    assert not judged(CHECK, reference, answers, change=forged(change)).ranks[1].passed


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything in an account."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(one for key, below in inner for one in leaves(below, (*path, key)))]


def test_no_account_makes_the_check_raise() -> None:
    """Whatever stands in place of any part of it: judging ends with a finding."""
    accounts: list[Any] = []
    reference = Reference()
    answers = [{}, changed("prefill.logits.1", add(1.0, 3, 2))]
    judged(
        CHECK,
        reference,
        answers,
        change=lambda values: accounts.append(values["account"]) or values,
    )
    places = [place for place in leaves(accounts[0]) if place]
    assert len(places) > 40
    others = (None, 0, 1e30, [], {}, "x")
    for number, place in enumerate(places):

        def forge(
            values: dict[str, Any], *, place: Any = place, other: Any = others[number % 6]
        ) -> dict[str, Any]:
            into = values["account"]
            for key in place[:-1]:
                into = into[key]
            into[place[-1]] = other
            return values

        assert len(judged(CHECK, reference, answers, change=forge).ranks) == 2


def tried(reference: Reference) -> Needles:
    """What the check makes of wrong logits in place of the reference's own, as its second run
    tells.
    """
    model = CHECKS.validate_python({"id": "it", "ranks": "every", "against": "reference", **CHECK})
    assert isinstance(model, EquivalentCheck)
    parity = parity_of(model, noted(model, reference, [reference.kept], arm="reference"))
    assert parity is not None
    assert parity.needles is not None
    return parity.needles


def test_wrong_logits_are_refused_where_the_noise_is_noise() -> None:
    """The first needle is enough.

    In the trials nothing is tried, for the reference is the same in all.
    """
    found = tried(Reference())
    assert [(one.what, one.telling, one.beyond, one.is_refused) for one in found.tried] == [
        ("prefill of prompt 0, rolled by 6 along axis 1", 5, 5, True)
    ]
    model = CHECKS.validate_python({"id": "it", "ranks": "every", "against": "reference", **CHECK})
    assert isinstance(model, EquivalentCheck)
    parity = parity_of(model, noted(model, Reference(), [Reference().answer]))
    assert parity is not None
    assert parity.needles is None


def test_noise_as_large_as_the_logits_refuses_nothing() -> None:
    """A variant that computes something else: every wrong array lies within what it allows."""
    reference = Reference()
    for name in [name for name in reference.kept if name.startswith("envelope.0.")]:
        reference.kept[name] = reference.kept[name] + np.float32(9)
    found = tried(reference)
    # Two axes of two prompts in two phases, and steps of another prompt.
    assert len(found.tried) == 10
    assert not found.is_refused
    assert found.scale is not None
    assert 1 < found.scale < 4


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        (lambda array: array * np.nan, "nonfinite"),
        (
            lambda array: np.where(np.arange(array.size).reshape(array.shape) == 3, np.inf, array),
            "nonfinite",
        ),
        (lambda array: array.T, "shape"),
        (lambda array: array[:-1], "shape"),
        (lambda array: array + 1, ""),
    ],
)
def test_for_want_of_what_it_fails(change: Callable[[Any], Any], lacks: str) -> None:
    """Another shape and what is not finite are told apart from wrong numbers."""
    reference = Reference()
    wrong = changed("prefill.logits.1", lambda array: change(array).astype("float32"))
    part = judged(CHECK, reference, [reference.answer, wrong]).ranks[1]
    assert (part.passed, part.lacks, part.uncompared) == (False, lacks, False)


def test_another_dtype_or_name_is_not_compared() -> None:
    """Neither says how far apart the two are."""
    reference = Reference()
    double = changed("prefill.logits.1", lambda array: array.astype("float64"))
    misspelt = {
        name.replace("logits", "logit"): values for name, values in reference.answer.items()
    }
    wants = [
        judged(CHECK, reference, kept).ranks[1].want(compares=True)
        for kept in ([reference.answer, double], [misspelt, misspelt])
    ]
    assert wants == ["comparison", "missing"]
