"""Finding rules, registering one's own, and refusing what has no meaning."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Multinomial, OneHotCategorical

import eligibility as el
from eligibility.errors import InvalidTypeError, InvalidValueError, UnsupportedDistributionError
from eligibility.rules import registry


@pytest.fixture(autouse=True)
def _forget_what_a_test_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {
        cls: {name: list(own) for name, own in p.items()} for cls, p in registry._RULES.items()
    }
    monkeypatch.setattr(registry, "_RULES", rules)
    monkeypatch.setattr(registry, "_CUSTOM", dict(registry._CUSTOM))


class Biased(Bernoulli):
    """A subclass without rules of its own."""


def test_subclass_inherits_the_rules_of_its_base() -> None:
    p, y = torch.tensor([0.2, 0.7]), torch.tensor([1.0, 0.0])
    assert torch.equal(
        el.eligibility(Biased(probs=p), y)["probs"], el.eligibility(Bernoulli(probs=p), y)["probs"]
    )


def test_nearest_class_wins_whatever_was_registered_last() -> None:
    @el.register_eligibility(Biased, "probs", equation="7")
    def seven(value: Tensor, probs: Tensor) -> Tensor:
        return 7 + torch.zeros_like(probs)

    @el.register_eligibility(Bernoulli, "probs", equation="8")
    def eight(value: Tensor, probs: Tensor) -> Tensor:
        return 8 + torch.zeros_like(probs)

    p, y = torch.tensor(0.5), torch.tensor(1.0)
    assert el.eligibility(Biased(probs=p), y) == {"probs": 7}
    assert el.eligibility(Bernoulli(probs=p), y) == {"probs": 8}
    assert el.eligibility(Biased(probs=p), y, wrt="logits") == {"logits": 0.5}


def test_a_registered_formula_stays_as_written_and_its_rule_rounds_once() -> None:
    def third(value: Tensor, probs: Tensor) -> Tensor:
        return (value - probs) / 3 + 1000 - 1000

    assert el.register_eligibility(Biased, "probs", equation="(y − p)/3")(third) is third
    p, y = torch.tensor(0.5, dtype=torch.bfloat16), torch.tensor(1)
    exact = torch.tensor(1 / 6, dtype=torch.bfloat16)
    assert third(y, p) != exact
    assert el.eligibility(Biased(probs=p), y) == {"probs": exact}
    assert registry.find_rule(Biased(probs=p), "probs").at({"probs": p}, y) == exact


def test_function_of_a_whole_distribution() -> None:
    @el.register_eligibility(Biased)
    def both(dist: Distribution, value: Tensor) -> dict[str, Tensor]:
        return {"probs": 2 * value, "extra": 3 * value}

    dist, y = Biased(probs=torch.tensor(0.5)), torch.tensor(1.0)
    assert el.eligibility(dist, y) == {"probs": 2, "extra": 3}
    assert el.eligibility(dist, y, wrt="extra") == {"extra": 3}
    with pytest.raises(UnsupportedDistributionError) as caught:
        el.eligibility(dist, y, wrt="odds")
    assert str(caught.value) == (
        "`wrt` of Biased: got 'odds', expected 'probs' or 'extra'; return it from the function "
        "that is registered for the class"
    )
    assert Biased in el.supported_distributions()


def test_class_without_rules() -> None:
    class Unknown(Distribution):
        arg_constraints = {}  # noqa: RUF012  # torch's own style
        support = None

    with pytest.raises(UnsupportedDistributionError) as caught:
        el.eligibility(Unknown(), torch.tensor(1.0))
    assert str(caught.value) == (
        "`dist`: got Unknown, expected a distribution of eligibility.supported_distributions(); "
        "register a rule for it with eligibility.register_eligibility"
    )


def test_own_class_without_a_support() -> None:
    class Shift(Distribution):
        def __init__(self, a: Tensor) -> None:
            self.a = a
            super().__init__(a.shape, validate_args=False)

    @el.register_eligibility(Shift, "a", equation="y − a")
    def shift(value: Tensor, a: Tensor) -> Tensor:
        return value - a

    assert el.eligibility(Shift(torch.tensor(1.0)), torch.tensor(3.0)) == {"a": 2}


def test_parameter_without_rule() -> None:
    with pytest.raises(UnsupportedDistributionError) as caught:
        el.eligibility(Bernoulli(probs=torch.tensor(0.5)), torch.tensor(1.0), wrt="odds")
    assert str(caught.value) == (
        "`wrt` of Bernoulli: got 'odds', expected 'probs' or 'logits'; register a rule for it with "
        "eligibility.register_eligibility"
    )


def test_outcome_outside_the_support() -> None:
    with pytest.raises(InvalidValueError) as caught:
        el.eligibility(Bernoulli(probs=torch.tensor(0.5)), torch.tensor(2.0))
    assert str(caught.value) == (
        "`value`: got outcomes outside the support of Bernoulli, expected Boolean(); pass what the "
        "distribution can sample"
    )


def test_action_outside_the_categories() -> None:
    with pytest.raises(InvalidValueError) as caught:
        el.eligibility(Categorical(torch.ones(5)), torch.tensor(7))
    assert str(caught.value) == (
        "`value`: got a maximum of 7, expected indices in [0, 5); there are K = 5 categories, "
        "counted from 0"
    )


def test_floating_point_action() -> None:
    with pytest.raises(InvalidTypeError) as caught:
        el.eligibility(Categorical(torch.ones(5)), torch.tensor(1.0))
    assert str(caught.value) == (
        "`value`: got dtype float32, expected an integer dtype; pass indices, for instance "
        "value.long()"
    )


def test_action_of_another_shape_is_not_broadcast() -> None:
    with pytest.raises(el.errors.ShapeError) as caught:
        el.eligibility(Categorical(torch.ones(4, 1, 3)), torch.zeros(4, dtype=torch.long))
    assert str(caught.value) == (
        "`value`: got shape [4], expected [*samples, 4, 1]; batch shape [4, 1] and event shape [] "
        "must come last; nothing is broadcast silently"
    )


def test_integer_actions_for_a_one_hot_distribution() -> None:
    """torch accepts them when B = K."""
    with pytest.raises(el.errors.EligibilityError):
        el.eligibility(OneHotCategorical(torch.ones(3, 3)), torch.tensor([0, 1, 2]))


def test_counts_that_do_not_sum_to_the_total() -> None:
    with pytest.raises(InvalidValueError) as caught:
        el.eligibility(Multinomial(5, torch.ones(3)), torch.tensor([1.0, 1.0, 1.0]))
    assert str(caught.value) == (
        "`value`: got a sum of 3, expected counts that sum to total_count = 5; correct the counts, "
        "or the total count"
    )


def test_supported_distributions_are_sorted_by_name() -> None:
    names = [cls.__name__ for cls in el.supported_distributions()]
    assert names == sorted(names)
