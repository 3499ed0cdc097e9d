"""Programs that act by another distribution than the one they learn, with and without ratios."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eligibility.audit.running.slopes import Target
from tests.audit.writing import PROGRAM, audited

SAMPLED = "        action = dist.sample()\n"
COLLECTED = "log_probs, rewards, done = [], [], False"
LOSS = "loss = -(gamma_t * log_probs * returns).sum()"


def acting_by(*lines: str) -> tuple[tuple[str, str], ...]:
    """The changes that make the program act by what these lines draw, and keep its ln b."""
    drawn = "".join(f"        {line}\n" for line in (*lines, "behaved.append(b[action].log())"))
    started = (COLLECTED, "log_probs, behaved, rewards, done = [], [], [], False")
    ratios = "ratios = (log_probs - torch.stack(behaved)).detach().exp()"
    return started, (SAMPLED, drawn), (LOSS, f"{ratios}\n    {LOSS}")


MIXED = "b = 0.1 + 0.8 * dist.probs.detach()"
DRAWN = "action = Categorical(probs=b).sample()"
MIXTURE = acting_by(MIXED, DRAWN)
FIXED = acting_by("b = torch.tensor([0.3, 0.7])", DRAWN)
HOT = acting_by("b = Categorical(logits=dist.logits.detach() / 2).probs", DRAWN)
IN_TWO_DRAWS = acting_by(
    MIXED,
    "explores = torch.rand(()) < 0.2",
    "action = torch.randint(2, ()) if explores else dist.sample()",
)
OF_EPISODE = (LOSS, "loss = -(gamma_t * log_probs * returns).sum() * ratios.prod()")
ATTACHED = (
    LOSS,
    "loss = -(log_probs - torch.stack(behaved)).sum().exp() * returns[0]",
)
SO_FAR = (
    LOSS,
    "weighted = ratios.cumprod(0) * gamma_t * torch.tensor(rewards)\n"
    "    loss = -(log_probs * weighted.flip(0).cumsum(0).flip(0)).sum()",
)


@pytest.mark.parametrize(
    ("acting", "loss", "named"),
    [
        (MIXTURE, OF_EPISODE, "importance-weights"),
        (MIXTURE, SO_FAR, "per-decision-importance-weights"),
        (FIXED, ATTACHED, "importance-weights"),
        (FIXED, SO_FAR, "per-decision-importance-weights"),
        (HOT, OF_EPISODE, "importance-weights"),
        (IN_TWO_DRAWS, OF_EPISODE, "importance-weights"),
    ],
)
def test_the_ratio_of_the_probabilities_makes_up_for_what_acts(
    acting: tuple[tuple[str, str], ...], loss: tuple[str, str], named: str, tmp_path: Path
) -> None:
    report = audited(tmp_path, *acting, loss, max_paths=400)
    assert report.verdict == "unbiased", report.text()
    assert named in {convention.name for convention in report.conventions}
    assert report.residual < report.tolerance


@pytest.mark.parametrize(
    ("acting", "loss"),
    [
        (MIXTURE, None),
        (FIXED, None),
        (HOT, None),
        (MIXTURE, (LOSS, OF_EPISODE[1].replace("sum() *", "sum() /"))),
    ],
)
def test_without_it_or_with_its_inverse_what_acts_is_not_scored(
    acting: tuple[tuple[str, str], ...], loss: tuple[str, str] | None, tmp_path: Path
) -> None:
    report = audited(tmp_path, *acting, *([loss] if loss else []), max_paths=400)
    assert [fault.rule for fault in report.faults] == ["behaviour-not-scored"], report.text()


def test_the_ratio_of_each_action_alone_has_a_bias(tmp_path: Path) -> None:
    own = (LOSS, "loss = -(ratios * gamma_t * log_probs * returns).sum()")
    report = audited(tmp_path, *HOT, own)
    assert report.verdict == "convention", report.text()
    assert {c.name for c in report.conventions if c.bias} == {"step-ratio"}
    assert report.residual > 0.01


def test_a_fault_is_named_next_to_the_ratio(tmp_path: Path) -> None:
    backwards = (OF_EPISODE[0], OF_EPISODE[1].replace("returns)", "returns.flip(0))"))
    report = audited(tmp_path, *MIXTURE, backwards)
    assert [fault.rule for fault in report.faults] == ["reversed-returns"], report.text()


def test_a_constant_baseline_may_be_subtracted(tmp_path: Path) -> None:
    compared = (OF_EPISODE[0], OF_EPISODE[1].replace("returns)", "(returns - 0.5))"))
    report = audited(tmp_path, *MIXTURE, compared)
    assert report.verdict == "unbiased", report.text()


def test_two_updates_of_two_episodes_are_explained(tmp_path: Path) -> None:
    text = PROGRAM.replace("    opt.zero_grad()\n    loss.backward()\n    opt.step()\n", "")
    text = text.replace("    loss = -(", "    loss = loss - (")
    text = text.replace(
        "    obs, _ = env.reset()\n",
        "    loss = 0.0 if episode % 2 == 0 else loss\n    obs, _ = env.reset()\n",
        1,
    )
    text += (
        "    if episode % 2:\n"
        "        opt.zero_grad()\n        loss.backward()\n        opt.step()\n"
    )
    changes = [
        (old.replace(LOSS, LOSS.replace("= -(", "= loss - (")), new.replace("= -(", "= loss - ("))
        for old, new in (*MIXTURE, OF_EPISODE)
    ]
    report = audited(tmp_path, *changes, text=text, max_paths=700)
    assert (report.verdict, report.updates) == ("unbiased", 2), report.text()


def test_distributions_of_other_sizes_are_others() -> None:
    """As those of two heads are, which a program scores in another order than it draws them."""
    two, three = (Target(probs, None, None, np.zeros(1)) for probs in ((0.5, 0.5), (0.2, 0.3, 0.5)))
    assert two.is_close(two)
    assert not two.is_close(three)
