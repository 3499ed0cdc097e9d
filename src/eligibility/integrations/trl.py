r"""TRL's GRPO and RLOO trainers, with their losses taken through the last layer in one pass.

A trainer needs log π of every token it learns from, and the slope of its loss by each. Where the
slope does not depend on log π, or on that token's alone, `eligibility.linear_reinforce_loss` and
`eligibility.linear_clipped_policy_loss` take the gradient on the way forward: 6 N V D operations
for N tokens, and none for a token of advantage 0. A loss or a metric that needs more, the entropy
among them, is TRL's own, over `eligibility.linear_statistics`: 8 N V D.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.ops.linear_categorical import linear_statistics
from eligibility.ops.linear_policy_loss import linear_clipped_policy_loss, linear_reinforce_loss

_IGNORED = -100
_ONE_PASS = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")  # clipped losses: −min(r A, clip(r) A)
# By these a model multiplies or divides its logits before the softmax.
_LOGIT_SCALES = ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")


class LinearLoss:
    """A mix-in for ``trl.GRPOTrainer`` and ``trl.RLOOTrainer`` (1.16 and later), before them.

    The gradient is that of the trainer it is mixed into, to rounding, for every configuration that
    it accepts. The metrics of a distribution or of a ratio (entropy, KL, clipped shares) are those
    of the steps that are logged, not means over the steps since the last: only there are they
    computed, and such a step takes TRL's own loss.

    Raises:
        InvalidTypeError: The class behind it is not such a trainer, or the model's last layer is
            not a plain linear layer.
        InvalidValueError: The model scales its logits, is prompt-tuned, or has a router's loss; or
            a batch has images.

    Example:
        >>> from trl import GRPOTrainer  # doctest: +SKIP
        >>> class Trainer(LinearLoss, GRPOTrainer): ...  # doctest: +SKIP
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        if not hasattr(super(), "_get_per_token_logps_and_entropies"):
            raise InvalidTypeError(
                f"`{type(self).__name__}`",
                "LinearLoss before a class that is not a trainer of TRL",
                "GRPOTrainer or RLOOTrainer of trl >= 1.16 after it",
                "write class Trainer(LinearLoss, GRPOTrainer)",
            )
        super().__init__(*args, **options)
        trainer: Any = self
        if trainer.aux_loss_enabled:
            raise _unsupported("a router's auxiliary loss", "the policy's loss alone")
        for model in (trainer.model, trainer.ref_model):
            if model is not None:
                _open_last_layer(_causal_model(trainer.accelerator.unwrap_model(model)))

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **modalities: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """log π and the entropy ``[B, T]`` of the last tokens, in TRL's form."""
        _check_text(modalities)

        def statistics(*head: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
            known = linear_statistics(*head, **options)
            return known.log_prob, known.entropy

        size = batch_size or len(input_ids)
        rows = [
            self._at_last_layer(model, ids, attended, logits_to_keep, statistics)
            for ids, attended in zip(
                torch.split(input_ids, size), torch.split(attention_mask, size), strict=True
            )
        ]
        log_probs, entropies = (torch.cat(parts) for parts in zip(*rows, strict=True))
        return log_probs, entropies if compute_entropy else None, None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's loss: in one pass where that gives its gradient and no metric is asked for."""
        trainer: Any = self
        if not trainer.model.training or self._logs_this_step() or not self._is_one_pass(inputs):
            return super()._compute_loss(model, inputs)  # type: ignore[misc, no-any-return]  # TRL's
        _check_text(inputs)
        mask = inputs["completion_mask"]
        counted = mask * inputs["tool_mask"] if "tool_mask" in inputs else mask
        advantage = inputs["advantages"]
        if advantage.ndim == 1:
            advantage = advantage.unsqueeze(1)
        advantage = advantage.expand(mask.shape)
        weight = self._token_weights(counted, inputs)
        function: Callable[..., Tensor] = linear_reinforce_loss
        options: dict[str, Any] = {"token_weight": weight, "reduction": "sum"}
        old = None if self._is_rloo else inputs.get("old_per_token_logps")
        if old is not None:
            function = linear_clipped_policy_loss
            options |= {"old_log_prob": old, "clip": (trainer.epsilon_low, trainer.epsilon_high)}
            if trainer.beta != 0.0:
                options |= {"ref_log_prob": inputs["ref_per_token_logps"], "kl_coef": trainer.beta}
        loss: Tensor = self._at_last_layer(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
            torch.cat([inputs["prompt_mask"], mask], 1),
            mask.shape[1],
            functools.partial(function, advantage=advantage, **options),
        )
        if old is not None:
            return loss
        # TRL's value, at ratios of 1: of answers, or of tokens.
        value = -inputs["advantages"].mean() if self._is_rloo else -(weight * advantage).sum()
        return torch.add(loss, value - loss.detach())

    def _at_last_layer(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        width: int,
        function: Callable[..., Any],
    ) -> Any:
        """What a function of the head makes of the last ``width`` tokens, inside all wrappers."""
        trainer: Any = self
        token = input_ids[:, -width:].masked_fill(attention_mask[:, -width:] == 0, _IGNORED)

        def call(hidden: Tensor, head: torch.nn.Linear, softcap: float | None) -> Any:
            hidden = hidden[:, -width - 1 : -1]
            given = {"bias": head.bias, "temperature": trainer.temperature, "softcap": softcap}
            if not getattr(trainer.args, "cast_lm_head_to_fp32", False):
                return function(hidden, head.weight, token, **given)
            with torch.autocast(hidden.device.type, enabled=False):
                return function(hidden.float(), head.weight, token, **given)

        with trainer.accelerator.autocast():
            return model(input_ids=input_ids, attention_mask=attention_mask, at_last_layer=call)

    @property
    def _is_rloo(self) -> bool:
        return not hasattr(self, "loss_type")

    def _logs_this_step(self) -> bool:
        """Whether TRL shows metrics at the end of the step that is being computed."""
        trainer: Any = self
        strategy, step = trainer.args.logging_strategy, trainer.state.global_step
        if strategy != "steps":
            return bool(strategy != "no")
        is_first = bool(trainer.args.logging_first_step) and step == 0
        return is_first or bool((step + 1) % trainer.state.logging_steps == 0)

    def _is_one_pass(self, inputs: dict[str, Any]) -> bool:
        """Whether each token's slope is known from that token alone."""
        trainer: Any = self
        if self._is_rloo:
            every = trainer.args.steps_per_generation * trainer.num_iterations
            return bool(trainer.args.gradient_accumulation_steps % every == 0)
        if trainer.loss_type not in _ONE_PASS or (
            trainer.use_vllm
            or trainer._entropy_bonus_enabled
            or trainer.top_entropy_quantile < 1.0
            or trainer.off_policy_mask_threshold is not None
        ):
            return False
        if inputs.get("old_per_token_logps") is None:
            return bool(trainer.beta == 0.0)
        if trainer.importance_sampling_level != "token" or trainer.args.delta is not None:
            return False
        return bool(trainer.beta == 0.0 or not trainer.args.use_bias_correction_kl)

    def _token_weights(self, mask: Tensor, inputs: dict[str, Any]) -> Tensor:
        """[B, T] each token's part in the loss: the divisor of TRL's loss type."""
        trainer: Any = self
        steps = 1 if self._is_rloo else trainer.current_gradient_accumulation_steps
        kind = "luspo" if self._is_rloo else trainer.loss_type  # sums over tokens
        divisors: dict[str, Callable[[], Any]] = {
            "grpo": lambda: mask.sum(-1, keepdim=True).clamp(min=1) * len(mask) * steps,
            "bnpo": lambda: mask.sum().clamp(min=1) * steps,
            "dr_grpo": lambda: len(mask) * trainer.max_completion_length * steps,
            "luspo": lambda: len(mask) * steps,
            "dapo": lambda: (
                inputs["num_items_in_batch"].clamp(min=1.0)
                / trainer.accelerator.num_processes
                * (steps / trainer.args.steps_per_generation)
            ),
        }
        weight: Tensor = mask / divisors[kind]()
        return weight


def _causal_model(model: Any) -> Any:
    """The language model under an adapter, checked."""
    if hasattr(model, "get_base_model"):
        if any(each.is_prompt_learning for each in model.peft_config.values()):
            raise _unsupported("an adapter that learns prompts", "LoRA, or no adapter")
        model = model.get_base_model()
    head = model.get_output_embeddings()
    if type(head) is not torch.nn.Linear:
        raise InvalidTypeError(
            "`model`",
            f"a last layer of type {type(head).__name__}",
            "torch.nn.Linear",
            "leave lm_head out of the adapter's target_modules, or use TRL's trainer as it is",
        )
    config = model.config.get_text_config()
    for name in _LOGIT_SCALES:
        if getattr(config, name, None) not in (None, 1.0):
            raise _unsupported(f"a model with {name}={getattr(config, name)}", "unscaled logits")
    return model


def _unsupported(got: str, expected: str) -> InvalidValueError:
    return InvalidValueError("`LinearLoss`", got, expected, "use TRL's trainer without LinearLoss")


def _check_text(inputs: dict[str, Any]) -> None:
    for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids", "token_type_ids"):
        if inputs.get(name) is not None:
            raise _unsupported(f"a batch with {name}", "text alone")


def _open_last_layer(model: Any) -> None:
    """Let ``forward(..., at_last_layer=f)`` give ``f(hidden, head, softcap)`` for the logits."""
    plain = model.forward
    softcap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)

    @functools.wraps(type(model).forward)  # `generate` reads its signature
    def forward(self: Any, *args: Any, at_last_layer: Any = None, **options: Any) -> Any:
        if at_last_layer is None:
            return plain(*args, **options)
        hidden = self.base_model(*args, use_cache=False, **options).last_hidden_state
        return at_last_layer(hidden, self.get_output_embeddings(), softcap)

    model.forward = types.MethodType(forward, model)
