"""The next token as transformers draws it, by what a program asks `generate` for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.trainers.answers import Tokens
from eligibility.audit.trainers.tiny import VOCABULARY


def next_token(
    generate: Callable[..., Any], model: Any, tokens: Tokens, options: dict[str, Any], **more: Any
) -> Tensor:
    """[V] the probabilities of the next token as transformers draws it, by its own scores.

    Args:
        generate: That of transformers.
        model: The model.
        tokens: Those before it.
        options: What the program asks `generate` for.
        more: What is asked for instead.
    """
    forced = _ONE_TOKEN | more
    asked = {k: v for k, v in options.items() if k not in (*forced, *_OF_WHOLE_ANSWERS)}
    settings = copy.deepcopy(asked.pop("generation_config", None))
    for name, value in forced.items():
        if settings is not None:
            setattr(settings, name, value)
        else:
            asked[name] = value
    ids = torch.tensor([tokens])
    mask = torch.ones_like(ids)
    with torch.no_grad():
        made = generate(
            model, input_ids=ids, attention_mask=mask, generation_config=settings, **asked
        )
    return torch.softmax(made.scores[0][0].double(), -1)


def one_token_probabilities(
    generate: Callable[..., Any], model: Any, tokens: Tokens, options: dict[str, Any]
) -> list[float]:
    """The same for the tokens that an answer may have."""
    probabilities: list[float] = next_token(generate, model, tokens, options).tolist()
    return probabilities[:VOCABULARY]


_OF_WHOLE_ANSWERS = ("stopping_criteria", "streamer")  # no settings: arguments alone
_ONE_TOKEN = {
    "do_sample": True,  # what a program does not say, the model's own configuration does
    "max_new_tokens": 1,
    "max_length": None,
    "min_new_tokens": None,
    "num_return_sequences": 1,
    "return_dict_in_generate": True,
    "output_scores": True,
    "num_beams": 1,
    "stop_strings": None,
}


def temperature_of(logits: Any, drawn: Any) -> float:
    """The temperature that turns these logits into what is drawn; 1 if none does."""
    z, p = torch.tensor(logits), torch.tensor(drawn)
    both = (p > 0).all(-1)  # elsewhere one token is cut off
    if not both.any():
        return 1.0
    z, p = z[both], p[both]
    ratio = (z[..., 0] - z[..., 1]) / (p[..., 0] / p[..., 1]).log()
    middle = float(ratio.median())
    return middle if float((ratio / middle - 1).abs().max()) < 1e-6 else 1.0


def setting(options: dict[str, Any], name: str) -> Any:
    """What `generate` is asked for under a name, by an argument or by a configuration."""
    return options.get(name, getattr(options.get("generation_config"), name, None))


def nucleus_of(options: dict[str, Any]) -> float:
    """The `top_p` that `generate` is asked for; 1 if none is."""
    return float(setting(options, "top_p") or 1.0)
