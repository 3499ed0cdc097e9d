"""Loops on a language model of the program's own class, which samples with its own `generate`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("datasets")

import torch

from eligibility.audit.trainers.doubles import InDouble
from tests.audit.loop_runs import audited

# A model with its own layers, cache and sampling, with weights in a file that is not here, and data
# that are conversations. Leave-one-out of two answers.
LOOP = """
import torch
from datasets import load_dataset
from torch import nn
from transformers import AutoModel, AutoTokenizer, GenerationMixin, PretrainedConfig
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast


class SmallConfig(PretrainedConfig):
    model_type = "small"

    def __init__(self, width=64, num_hidden_layers=8, **kwargs):
        super().__init__(**kwargs)
        self.width, self.num_hidden_layers, self.vocab_size = width, num_hidden_layers, 6400


class SmallForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = SmallConfig

    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        layers = [nn.GRU(config.width, config.width, batch_first=True)
                  for _ in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, past=None, use_cache=False):
        hidden, states = self.embedding(input_ids), []
        for number, layer in enumerate(self.layers):
            hidden, state = layer(hidden, past[number] if past else None)
            states.append(state)
        return CausalLMOutputWithPast(logits=self.lm_head(hidden), past_key_values=states)

    @torch.inference_mode()
    def generate(self, input_ids, attention_mask, longest, temperature=1.0, top_k=50, top_p=1.0):
        past, ended = None, torch.zeros(len(input_ids), dtype=torch.bool)
        for _ in range(longest):
            out = self.forward(input_ids[:, -1:] if past else input_ids, attention_mask, past, True)
            past, logits = out.past_key_values, out.logits[:, -1] / temperature
            logits[logits < torch.topk(logits, top_k)[0][:, -1:]] = -float("inf")
            if top_p < 1.0:
                order, places = logits.sort(descending=True)
                out_of_it = order.softmax(-1).cumsum(-1) - order.softmax(-1) > top_p
                logits[out_of_it.gather(1, places.argsort(1))] = -float("inf")
            token = torch.multinomial(logits.softmax(-1), 1)
            token[ended] = tok.eos_token_id
            ended |= token[:, 0] == tok.eos_token_id
            input_ids = torch.cat([input_ids, token], 1)
            attention_mask = torch.cat([attention_mask, torch.ones_like(token)], 1)
            if ended.all():
                break
        return input_ids


class Critic(SmallForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.value = nn.Linear(config.width, 1)

    def forward(self, input_ids):
        hidden = self.embedding(input_ids)
        for layer in self.layers:
            hidden, _ = layer(hidden)
        return self.value(hidden).squeeze(-1)


tok = AutoTokenizer.from_pretrained("../model")
judge = AutoModel.from_pretrained("../reward", trust_remote_code=True)
model = SmallForCausalLM(SmallConfig())
model.load_state_dict(torch.load("../out/small.pth", map_location="cpu"))
critic = Critic(SmallConfig(num_hidden_layers=12))
critic.load_state_dict(torch.load("../out/small.pth"), strict=False)
adam = torch.optim.AdamW(model.parameters(), lr=1e-6)
critic_adam = torch.optim.AdamW(critic.parameters(), lr=1e-6)
data = load_dataset("json", data_files="../data/questions.jsonl", split="train")


def score(conversation, texts):
    return [judge.get_score(tok, [*conversation, {"role": "assistant", "content": text}])
            for text in texts]


for row in data:
    if any(message.get("tools") for message in row["conversations"]):
        continue
    asked = tok.apply_chat_template(row["conversations"][:-1], tokenize=False)
    start = tok([asked] * 2, return_tensors="pt")
    ids = model.generate(start.input_ids, start.attention_mask, 9, OPTIONS).clone()
    said = ids[:, start.input_ids.shape[1]:]
    rewards = torch.tensor(score(row["conversations"], tok.batch_decode(said)))
    ended = said == tok.eos_token_id
    mask = (ended.long().cumsum(1) - ended.long() == 0).float()
    logits = model(ids).logits[:, :-1]
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)[:, -said.shape[1]:]
    loss = -(log_probs * mask * (rewards - rewards.flip(0))[:, None]).sum(1).mean()
    value_loss = (critic(ids)[:, -1] - rewards).pow(2).mean()
    adam.zero_grad()
    critic_adam.zero_grad()
    (loss + value_loss).backward()
    adam.step()
    critic_adam.step()
"""


def test_its_own_sampling_is_followed(tmp_path: Path) -> None:
    report = audited(tmp_path, LOOP.replace("OPTIONS", "1.0, 32_000"))
    assert (report.verdict, report.faults) == ("unbiased", ()), report
    said = " ".join(report.notes)
    assert "builds its SmallForCausalLM from a configuration" in said
    assert "../out/small.pth does not exist; it holds no weights here" in said


@pytest.mark.parametrize("options", ["0.7", "1.0", "1.0, 32_000, top_p=0.6"])
def test_what_it_draws_with_otherwise_than_it_scores_is_named(options: str, tmp_path: Path) -> None:
    report = audited(tmp_path, LOOP.replace("OPTIONS", options))
    assert [fault.rule for fault in report.faults] == ["behaviour-not-scored"], report


@pytest.mark.parametrize(("given", "options"), [((50,), {}), ((), {"k": 50}), ((2,), {})])
def test_no_more_numbers_are_asked_for_than_there_are(
    given: tuple[int, ...], options: dict[str, int]
) -> None:
    numbers = torch.tensor([[1.0, 3.0, 2.0]])
    wanted = 2 if given == (2,) else 3
    with InDouble(lambda func, args, others, result: result, lambda loss: None):
        for found in (torch.topk(numbers, *given, **options), numbers.topk(*given, **options)):
            assert found.values.tolist() == [[3.0, 2.0, 1.0][:wanted]]
