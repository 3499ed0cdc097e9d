"""The config: each field's domain, with the full text of each refusal."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest

from eligibility.errors import EligibilityError
from eligibility.train.config import Config
from eligibility.train.presets import PRESETS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"env": ""}, "`env`: got '', expected the id of an environment; pass a name: CartPole-v1"),
        ({"seed": -1}, "`seed`: got -1, expected a whole number >= 0; choose a larger one"),
        ({"seed": 1.0}, "`seed`: got 1.0, expected a whole number >= 0; pass an int"),
        ({"steps": 0}, "`steps`: got 0, expected a whole number >= 1; choose a larger one"),
        (
            {"max_episode_steps": 0},
            "`max_episode_steps`: got 0, expected a whole number >= 1; choose a larger one",
        ),
        (
            {"threads": True},
            "`threads`: got True, expected a whole number in [1, 1024]; pass an int",
        ),
        (
            {"stop_at": float("nan")},
            "`stop_at`: got nan, expected a return; choose another value",
        ),
        ({"stop_at": "475"}, "`stop_at`: got '475', expected a return; pass a number"),
        (
            {"discount": 1.5},
            "`discount`: got 1.5, expected a number in [0, 1]; choose another value",
        ),
        (
            {"entropy_coef": -0.1},
            "`entropy_coef`: got -0.1, expected a finite number >= 0; choose another value",
        ),
        (
            {"learning_rate": 0},
            "`learning_rate`: got 0, expected a finite number > 0; 0 would learn nothing",
        ),
        (
            {"learning_rate": float("inf")},
            "`learning_rate`: got inf, expected a finite number > 0; choose another value",
        ),
        (
            {"credit": "whole-returns"},
            "`credit`: got 'whole-returns', expected reward-to-go or whole-return or "
            "next-reward; did you mean whole-return?",
        ),
        (
            {"activation": "elu"},
            "`activation`: got 'elu', expected tanh or relu; did you mean relu?",
        ),
        (
            {"recurrent": "rnn"},
            "`recurrent`: got 'rnn', expected none or gru or lstm; choose one of these",
        ),
        (
            {"recurrent": "gru", "hidden_sizes": ()},
            "`recurrent`: got gru, expected none, because a network without hidden layers has no "
            "layer to make recurrent; add --hidden-sizes 64",
        ),
        (
            {"recurrent": "lstm", "hidden_sizes": (2, 10_000)},
            "`hidden_sizes`: got 2 layers with 400,080,000 weights between them, expected at "
            "most 100 layers and 268,435,456 weights; choose smaller ones, or pass your own "
            "network",
        ),
        (
            {"credit": "next-reward", "discount_updates": True},
            "`discount_updates`: got True, expected False with credit next-reward; "
            "the discount restarts after each reward",
        ),
        (
            {"credit": "whole-return", "discount_updates": True},
            "`discount_updates`: got True, expected False with credit whole-return; "
            "the discounted whole return already contains γ^t",
        ),
        (
            {"baseline": "state-values"},
            "`baseline`: got 'state-values', expected none or moving-average or leave-one-out or "
            "time-dependent-leave-one-out or state-value or per-weight; did you mean state-value?",
        ),
        (
            {"baseline": "per-weight+leave-one-out"},
            "`baseline`: got 'per-weight+leave-one-out', expected state-value as the first and "
            "per-weight as the last of several; change their order",
        ),
        (
            {"baseline": "leave-one-out+time-dependent-leave-one-out"},
            "`baseline`: got 'leave-one-out+time-dependent-leave-one-out', expected one of "
            "leave-one-out and time-dependent-leave-one-out, because both look at the other "
            "episodes; remove one of them",
        ),
        (
            {"baseline": "none+per-weight"},
            "`baseline`: got 'none+per-weight', expected different baselines; remove none and "
            "repeated names",
        ),
        (
            {"baseline_rate": 0.5},
            "`baseline_rate`: got 0.5, expected no value, because nothing uses it; add --baseline "
            "moving-average, or omit it",
        ),
        (
            {"shorten_noisy_steps": True},
            "`shorten_noisy_steps`: got True, expected no value, because nothing uses it; add "
            "--natural-gradient 0.01, or omit it",
        ),
        (
            {"line_search": True},
            "`line_search`: got True, expected no value, because nothing uses it; add "
            "--natural-gradient 0.01, or omit it",
        ),
        (
            {"value_knows_time": False},
            "`value_knows_time`: got False, expected no value, because nothing uses it; add "
            "--baseline state-value, or omit it",
        ),
        (
            {"normalize_returns": True},
            "`normalize_returns`: got True, expected no value, because nothing uses it; add "
            "--no-normalize, or omit it",
        ),
        (
            {"entropy_schedule": "linear"},
            "`entropy_schedule`: got linear, expected no value, because nothing uses it; add "
            "--entropy-coef 0.01, or omit it",
        ),
        (
            {"damping": 0.5},
            "`damping`: got 0.5, expected no value, because nothing uses it; add "
            "--natural-gradient "
            "0.01, or omit it",
        ),
        (
            {"gae_lambda": 0.9},
            "`gae_lambda`: got 0.9, expected the baseline state-value and credit reward-to-go "
            "with it; add --baseline state-value",
        ),
        (
            {"bootstrap": True, "baseline": "none"},
            "`bootstrap`: got True, expected the baseline state-value and credit reward-to-go "
            "with it; add --baseline state-value",
        ),
        ({"normalize": 1}, "`normalize`: got 1, expected True or False; pass a bool"),
        (
            {"observation_keys": ["image", 3]},
            "`observation_keys`: got ['image', 3], expected names such as image,direction; "
            "separate them by commas",
        ),
        (
            {"hidden_sizes": "64,wide"},
            "`hidden_sizes`: got [64, 'wide'], expected positive widths up to 65536, such "
            "as 64,64; "
            "separate them by commas",
        ),
        (
            {"hidden_sizes": (65_536, 65_536)},
            "`hidden_sizes`: got 2 layers with 4,294,967,296 weights between them, expected at "
            "most 100 layers and 268,435,456 weights; choose smaller ones, or pass your own "
            "network",
        ),
        (
            {"environments": 300_000},
            "`environments`: got 300000, expected a whole number in [1, 65536]; choose a smaller "
            "one",
        ),
        (
            {"baseline": "leave-one-oot"},
            "`baseline`: got 'leave-one-oot', expected none or moving-average or leave-one-out "
            "or time-dependent-leave-one-out or state-value or per-weight; did you mean "
            "leave-one-out?",
        ),
        (
            {"environments": 1},
            "`environments`: got 1, expected at least 2 for the baseline "
            "time-dependent-leave-one-out; choose baseline moving-average or none for a single "
            "environment",
        ),
    ],
)
def test_refuses(options: dict[str, Any], text: str) -> None:
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Config(**{"env": "CartPole-v1", **options})


def test_an_unknown_option_is_answered_with_a_suggestion() -> None:
    names = ", ".join(field.name for field in fields(Config) if field.name != "env")
    text = f"`lerning_rate`: got an unknown option, expected {names}; did you mean learning_rate?"
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        Config.from_options("CartPole-v1", {"lerning_rate": 0.1})


@pytest.mark.parametrize("sizes", ["64, 32", (64, 32), [64, 32]])
def test_hidden_sizes_of_the_command_line_and_of_json_are_the_same(sizes: Any) -> None:
    assert Config("CartPole-v1", hidden_sizes=sizes).hidden_sizes == (64, 32)


def test_no_hidden_layers_are_allowed() -> None:
    assert Config("CartPole-v1", hidden_sizes="").hidden_sizes == ()


def test_every_field_has_a_help_text() -> None:
    assert all(field.metadata["help"] for field in Config.__dataclass_fields__.values())


@pytest.mark.parametrize("env", sorted(PRESETS))
def test_a_preset_is_between_the_defaults_and_the_users_options(env: str) -> None:
    name, value = next(iter(PRESETS[env].items()))
    assert getattr(Config.from_options(env, {}), name) == value
    assert getattr(Config.from_options(env, {name: getattr(Config(env), name)}), name) != value


def test_envpools_environments_have_the_same_presets() -> None:
    pool = Config.from_options("envpool:CartPole-v1", {"seed": 3})
    assert pool == replace(Config.from_options("CartPole-v1", {"seed": 3}), env=pool.env)


def test_observation_keys_are_read_as_the_command_line_writes_them() -> None:
    for keys in ("image, direction", ("image", "direction"), ["image", "direction"]):
        assert Config("CartPole-v1", observation_keys=keys).observation_keys == (
            "image",
            "direction",
        )
