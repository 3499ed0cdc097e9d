"""Blackjack-v1 exactly: what a policy pays on average, and what the best one does.

Hands of a hundred episodes say little, because a hand pays −1, 0 or 1. The deck is endless, so the
expectation is a small sum: no sampling. Rules: ``gymnasium.make("Blackjack-v1")``, those of Sutton
& Barto 2018, example 5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

# Aces are 1; every card has the same probability, and four of them count 10.
CARDS = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}
State = tuple[int, int, int]  # the player's sum, the dealer's card, whether an ace counts 11
Policy = Callable[[State], int]  # 0: stick, 1: hit


def draw(total: int, ace: int, card: int) -> tuple[int, int]:
    """A hand's sum and usable ace after one more card; above 21: bust."""
    total, ace = total + card, ace
    if card == 1 and total + 10 <= 21:
        return total + 10, 1
    if total > 21 and ace:
        return total - 10, 0
    return total, ace


@cache
def dealers_end(total: int, ace: int) -> dict[int, float]:
    """Probabilities of the dealer's last sum; 0: bust."""
    if total > 21:
        return {0: 1.0}
    if total >= 17:
        return {total: 1.0}
    ends: dict[int, float] = {}
    for card, chance in CARDS.items():
        for end, share in dealers_end(*draw(total, ace, card)).items():
            ends[end] = ends.get(end, 0) + chance * share
    return ends


def stick(total: int, shown: int) -> float:
    """The expected reward of stopping here, not with a natural."""
    ends = dealers_end(*draw(0, 0, shown))
    return sum(chance * ((total > end) - (total < end)) for end, chance in ends.items())


def expected_return(policy: Policy | None) -> float:
    """The mean of a hand, over the first cards of both; None: of the best policy."""

    @cache
    def play(state: State) -> float:
        stay = stick(state[0], state[1])
        if policy is None:
            return max(stay, hit(state))
        return hit(state) if policy(state) else stay

    def hit(state: State) -> float:
        total, shown, ace = state
        hands = {card: draw(total, ace, card) for card in CARDS}
        return sum(
            CARDS[card] * (-1.0 if after > 21 else play((after, shown, usable)))
            for card, (after, usable) in hands.items()
        )

    value = 0.0
    for (first, one), (second, two) in product(CARDS.items(), repeat=2):
        total, ace = draw(*draw(0, 0, first), second)
        for shown, three in CARDS.items():
            state = (total, shown, ace)
            natural = total == 21 and (policy is None or not policy(state))
            value += one * two * three * (natural_wins(shown) if natural else play(state))
    return value


def natural_wins(shown: int) -> float:
    """The reward of stopping with 21 on two cards: 1, unless the dealer has that too."""
    return 1 - {1: CARDS[10], 10: CARDS[1]}.get(shown, 0.0)
