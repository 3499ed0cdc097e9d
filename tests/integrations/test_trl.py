"""TRL's trainers with the loss taken in one pass: gradients, losses and metrics are TRL's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("trl")

import trl

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.integrations.trl import LinearLoss
from tests.integrations import trl_rank
from tests.integrations.tiny_trainers import (
    KINDS,
    LINEAR,
    ROWS,
    VOCABULARY,
    WIDTH,
    LinearGRPO,
    LinearRLOO,
    made,
    tiny,
)
from tests.ranks import together

# TRL's own configuration warns of transformers' deprecations.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PROMPT = 3
# Each side sums some dozens of single-precision terms, and TRL's head more of them in one order.
SINGLE = 1e-5


def batch(*kept: str) -> dict[str, Tensor]:
    """Answers of different lengths, one of them empty; the old policy's ratios are not all 1."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([6, 3, 1, 0])
    mask = (torch.arange(WIDTH) < lengths[:, None]).long()
    every = {
        "prompt_ids": torch.randint(1, VOCABULARY, (ROWS, PROMPT), generator=generator),
        "prompt_mask": torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 1], [1, 1, 1]]),
        "completion_ids": torch.randint(1, VOCABULARY, (ROWS, WIDTH), generator=generator) * mask,
        "completion_mask": mask,
        "advantages": torch.tensor([1.3, -0.7, 0.0, 0.4]),
        "num_items_in_batch": mask.sum(),
        "old_per_token_logps": torch.full((ROWS, WIDTH), -3.0),
        "ref_per_token_logps": torch.full((ROWS, WIDTH), -4.0),
        "old_logps": torch.tensor([-23.0, -12.0, -4.0, 0.0]),
        "tool_mask": torch.arange(WIDTH).ne(1).long().expand(ROWS, WIDTH),
    }
    always = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")
    return {name: every[name] for name in (*always, "num_items_in_batch", *kept)}


def gradient(trainer: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    trainer.current_gradient_accumulation_steps = 2
    trainer.model.train()
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, inputs)
    (1.5 * loss).backward()
    parameters = trainer.model.named_parameters()
    return loss.detach(), {n: p.grad.clone() for n, p in parameters if p.grad is not None}


def assert_same(found: Any, expected: Any) -> None:
    (loss, gradients), (expected_loss, expected_gradients) = found, expected
    assert float(loss) == pytest.approx(float(expected_loss), rel=SINGLE, abs=SINGLE)
    assert gradients.keys() == expected_gradients.keys()
    for name, grad in expected_gradients.items():
        assert float(grad.norm()) > 0 or float(gradients[name].norm()) == 0
        assert float((gradients[name] - grad).norm()) <= SINGLE * float(grad.norm()), name


class NoStatistics:
    """Fails if a loss that one pass can give asks for the statistics of the tokens."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("statistics of every token were computed")


OLD = ("old_per_token_logps",)
ONE_PASS = [
    *(("GRPO", {"loss_type": name}, ()) for name in ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")),
    ("GRPO", {"loss_type": "grpo", "importance_sampling_level": "sequence"}, ()),
    ("GRPO", {"loss_type": "luspo", "importance_sampling_level": "sequence"}, ()),
    ("GRPO", {"loss_type": "dapo", "temperature": 0.7}, ("tool_mask",)),
    ("GRPO", {"loss_type": "dapo"}, OLD),
    ("GRPO", {"loss_type": "grpo", "epsilon": 0.1, "epsilon_high": 0.5}, OLD),
    (
        "GRPO",
        {"loss_type": "dr_grpo", "beta": 0.3, "use_bias_correction_kl": False},
        (*OLD, "ref_per_token_logps"),
    ),
]
TRLS_OWN = [
    ("GRPO", {"loss_type": "cispo"}, OLD),
    ("GRPO", {"loss_type": "sapo"}, OLD),
    ("GRPO", {"loss_type": "vespo"}, OLD),
    ("GRPO", {"importance_sampling_level": "sequence"}, OLD),
    ("GRPO", {"delta": 1.5}, OLD),
    ("GRPO", {"entropy_coef": 0.1}, ()),
    ("GRPO", {"top_entropy_quantile": 0.5}, ()),
    ("GRPO", {"beta": 0.3}, ("ref_per_token_logps",)),
    ("GRPO", {"beta": 0.3}, (*OLD, "ref_per_token_logps")),
    ("RLOO", {"beta": 0.0, "num_iterations": 2}, ("old_logps",)),
]


@pytest.mark.parametrize(("kind", "options", "inputs"), ONE_PASS)
def test_one_pass_gives_the_loss_and_the_gradient_of_trl(
    kind: str, options: dict[str, Any], inputs: tuple[str, ...], tmp_path: Any, monkeypatch: Any
) -> None:
    configuration, plain = KINDS[kind]
    expected = gradient(made(plain, configuration, tmp_path, **options), batch(*inputs))
    fused = made(LINEAR[kind], configuration, tmp_path, **options)
    monkeypatch.setattr("eligibility.integrations.trl.linear_statistics", NoStatistics())
    assert_same(gradient(fused, batch(*inputs)), expected)


@pytest.mark.parametrize(("kind", "options", "inputs"), TRLS_OWN)
def test_what_one_pass_cannot_give_is_trls_own_loss(
    kind: str, options: dict[str, Any], inputs: tuple[str, ...], tmp_path: Any
) -> None:
    configuration, plain = KINDS[kind]
    expected = gradient(made(plain, configuration, tmp_path, **options), batch(*inputs))
    fused = made(LINEAR[kind], configuration, tmp_path, **options)
    assert not fused._is_one_pass(batch(*inputs))
    assert_same(gradient(fused, batch(*inputs)), expected)


def test_rloo_on_policy_takes_one_pass(tmp_path: Any, monkeypatch: Any) -> None:
    """TRL computes the ratio to the policy that sampled, which is this one."""
    plain = made(trl.RLOOTrainer, trl.RLOOConfig, tmp_path, beta=0.0)
    inputs = batch()
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        known = plain._get_per_token_logps_and_entropies(plain.model, ids, attended, WIDTH)[0]
    inputs["old_logps"] = (known * inputs["completion_mask"]).sum(1)
    expected = gradient(plain, inputs)
    fused = made(LinearRLOO, trl.RLOOConfig, tmp_path, beta=0.0)
    monkeypatch.setattr("eligibility.integrations.trl.linear_statistics", NoStatistics())
    assert_same(gradient(fused, inputs), expected)


def test_a_step_that_is_logged_has_trls_metrics(tmp_path: Any) -> None:
    options = {"logging_strategy": "steps", "logging_steps": 1}
    metrics = []
    for trainer in (trl.GRPOTrainer, LinearGRPO):
        made_here = made(trainer, trl.GRPOConfig, tmp_path, **options)
        made_here.state.logging_steps = 1
        gradient(made_here, batch(*OLD))
        metrics.append({name: values[0] for name, values in made_here._metrics["train"].items()})
    assert "entropy" in metrics[0]
    assert metrics[1] == pytest.approx(metrics[0], rel=SINGLE)


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_two_updates_of_each_batch_train_the_same_policy(kind: str, tmp_path: Any) -> None:
    """Two micro-batches, two iterations, one step logged; sampled tokens are the same ones."""
    policies, shown = [], []
    configuration, plain = KINDS[kind]
    for trainer in (plain, LINEAR[kind]):
        fused = made(
            trainer,
            configuration,
            tmp_path,
            max_steps=4,
            num_iterations=2,
            gradient_accumulation_steps=2,
            per_device_train_batch_size=2,
            learning_rate=0.5,
            logging_strategy="steps",
            logging_steps=2,
        )
        before = torch.cat([p.detach().flatten() for p in fused.model.parameters()])
        fused.train()
        after = torch.cat([p.detach().flatten() for p in fused.model.parameters()])
        policies.append(after - before)
        shown.append([entry for entry in fused.state.log_history if "entropy" in entry])
    assert float(policies[0].norm()) > 1e-3
    assert float((policies[1] - policies[0]).norm()) < 1e-4 * float(policies[0].norm())
    assert len(shown[0]) == len(shown[1]) == 2
    assert shown[1][0].keys() == shown[0][0].keys()


def test_two_processes_train_the_policy_that_trl_trains(tmp_path: Any) -> None:
    together(2, trl_rank.train_both, [str(tmp_path)])
    plain, fused = (torch.load(tmp_path / f"{name}.pt") for name in ("plain", "fused"))
    assert float(plain.norm()) > 1e-3
    assert float((fused - plain).norm()) < 1e-4 * float(plain.norm())


def test_an_adapter_of_low_rank_learns_the_same(tmp_path: Any) -> None:
    peft = pytest.importorskip("peft")
    found = []
    for trainer in (trl.GRPOTrainer, LinearGRPO):
        adapter = peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"])
        fused = made(trainer, trl.GRPOConfig, tmp_path, peft=adapter)
        generator = torch.Generator().manual_seed(2)
        for name, parameter in fused.model.named_parameters():
            if "lora" in name:
                parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        found.append(gradient(fused, batch()))
    assert all("lora" in name for name in found[1][1])
    assert_same(found[1], found[0])


def test_a_last_layer_that_is_no_plain_product_is_refused(tmp_path: Any) -> None:
    class Quantised(torch.nn.Linear):
        pass

    model = tiny()
    model.lm_head = Quantised(16, VOCABULARY, bias=False)
    with pytest.raises(InvalidTypeError, match="got a last layer of type Quantised, expected torc"):
        made(LinearGRPO, trl.GRPOConfig, tmp_path, model)


def test_scaled_logits_are_refused(tmp_path: Any) -> None:
    model = tiny()
    model.config.logit_scale = 0.5
    with pytest.raises(InvalidValueError, match="got a model with logit_scale=0"):
        made(LinearGRPO, trl.GRPOConfig, tmp_path, model)


def test_images_are_refused(tmp_path: Any) -> None:
    fused = made(LinearGRPO, trl.GRPOConfig, tmp_path)
    with pytest.raises(InvalidValueError, match="got a batch with pixel_values, expected text"):
        gradient(fused, batch() | {"pixel_values": torch.zeros(1)})


def test_a_class_that_is_no_trainer_is_refused() -> None:
    class Nothing(LinearLoss):
        pass

    with pytest.raises(InvalidTypeError, match=r"write class Trainer\(LinearLoss, GRPOTrainer\)"):
        Nothing()
