"""Stand-ins for the engines that draw or train elsewhere: vLLM draws with the probe's `generate`.

Of DeepSpeed the steps remain: what a loss is divided by, and when the optimizer is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.interception.surroundings import Inert, replace_package
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.tiny import END, PAD

# Options of SamplingParams by what `generate` calls them; some have the same name in both.
_OF_GENERATE = {
    "n": "num_return_sequences",
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
}
_LIKE_GENERATE = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_ALTERS = (  # what `generate` cannot do: options that change what is drawn, unless they are falsy
    "presence_penalty", "frequency_penalty", "logit_bias", "allowed_token_ids", "bad_words",
    "guided_decoding", "structured_outputs", "logits_processors",
)  # fmt: skip


class SamplingParams:
    """How vLLM draws, with vLLM's defaults."""

    def __init__(self, n: int = 1, **given: Any) -> None:
        self.n, self.max_tokens = n, 16
        self.temperature, self.top_p, self.top_k = 1.0, 1.0, 0
        self.logprobs: int | None = None
        self.detokenize = self.skip_special_tokens = True
        vars(self).update(given)

    def clone(self) -> SamplingParams:
        """Another one like it."""
        return SamplingParams(**vars(self))

    def for_generate(self) -> dict[str, Any]:
        """The arguments with which transformers' ``generate`` draws in the same way."""
        said = vars(self)
        for name in _ALTERS:
            if said.get(name):
                raise Refused(
                    f"the program draws with SamplingParams({name}=…), which transformers' "
                    "`generate` does not have; audit its loss with audit_token_loss"
                )
        asked = {_OF_GENERATE[name]: said[name] for name in _OF_GENERATE if name in said}
        asked |= {name: said[name] for name in _LIKE_GENERATE if name in said}
        asked["top_k"] = max(asked["top_k"], 0)  # -1: all of them
        return asked | {"do_sample": said["temperature"] > 0}


class Vllm:
    """vLLM's ``LLM``: its model is the probe's, and so are its tokenizer and its answers."""

    def __init__(self, model: Any, tokenizer: Any, options: dict[str, Any]) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._processed = str(options.get("logprobs_mode", "")).startswith("processed")

    def __getattr__(self, name: str) -> Any:
        """What moves memory or weights: ``sleep``, ``llm_engine``, ``collective_rpc``."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()

    def get_tokenizer(self) -> Any:
        """The probe's."""
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Those of its own defaults."""
        return SamplingParams()

    def chat(self, messages: Any, sampling_params: Any = None, **options: Any) -> list[Any]:
        """Answers to conversations."""
        several = messages and isinstance(messages[0], Sequence)
        prompts = [
            self._tokenizer.apply_chat_template(each, tokenize=False, add_generation_prompt=True)
            for each in (messages if several else [messages])
        ]
        return self.generate(prompts, sampling_params)

    def generate(
        self, prompts: Any = None, sampling_params: Any = None, *args: Any, **options: Any
    ) -> list[Any]:
        """A ``RequestOutput`` for each prompt."""
        given = prompts if prompts is not None else options.get("prompt_token_ids")
        rows = [self._read(each) for each in _listed(given)]
        asked = sampling_params or SamplingParams()
        if isinstance(asked, Sequence):
            if any(vars(each) != vars(asked[0]) for each in asked):
                raise Refused("the program gives vLLM other SamplingParams for each prompt")
            asked = asked[0]
        width = max(len(ids) for _, ids in rows)
        pads = self._model.generation_config.pad_token_id
        pads = END if pads is None else pads
        ids = torch.tensor([[pads] * (width - len(row)) + row for _, row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for _, row in rows])
        scored = asked.logprobs is not None
        drawn = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            return_dict_in_generate=scored,
            **asked.for_generate(),
        )
        sequences, scores = (drawn.sequences, self._scores(drawn)) if scored else (drawn, None)
        answers = [
            self._completion(place % asked.n, asked, row, None if scores is None else scores[place])
            for place, row in enumerate(sequences[:, width:])
        ]
        return [
            SimpleNamespace(
                request_id=str(place), prompt=text, prompt_token_ids=row, finished=True,
                outputs=answers[place * asked.n : (place + 1) * asked.n],
            )
            for place, (text, row) in enumerate(rows)
        ]  # fmt: skip

    def _read(self, prompt: Any) -> tuple[str | None, list[int]]:
        """The text and the tokens of one prompt."""
        if isinstance(prompt, Mapping):
            named = ("prompt_token_ids", "input_ids", "prompt")
            prompt = next((prompt[name] for name in named if name in prompt), "")
        if isinstance(prompt, str):
            return prompt, list(self._tokenizer(prompt)["input_ids"])
        return None, torch.as_tensor(prompt).tolist()

    def _scores(self, drawn: Any) -> Tensor:
        """[N, W, V] log-probabilities of every token."""
        return torch.stack(drawn.scores if self._processed else drawn.logits, 1).log_softmax(-1)

    def _completion(
        self, index: int, asked: SamplingParams, row: Tensor, scores: Tensor | None
    ) -> Any:
        tokens = row.tolist()
        ended = END in tokens
        tokens = tokens[: tokens.index(END) + 1] if ended else [t for t in tokens if t != PAD]
        text = self._tokenizer.decode(tokens, skip_special_tokens=asked.skip_special_tokens)
        made = SimpleNamespace(
            index=index, text=text if asked.detokenize else "", token_ids=tokens,
            cumulative_logprob=None, logprobs=None,
            finish_reason="stop" if ended else "length", stop_reason=None,
        )  # fmt: skip
        if scores is not None:
            each = scores[torch.arange(len(tokens)), tokens].tolist()
            said = zip(tokens, each, strict=True)
            made.logprobs = [{t: SimpleNamespace(logprob=s, rank=1)} for t, s in said]
            made.cumulative_logprob = sum(each)
        return made


def _listed(prompts: Any) -> list[Any]:
    """The prompts of one call, each a text, a dictionary or a list of tokens."""
    alone = isinstance(prompts, str | Mapping) or (len(prompts) and isinstance(prompts[0], int))
    return [prompts] if alone else list(prompts)


class DeepSpeedEngine(torch.nn.Module):
    """Calls its model, and its optimizer after as many losses as are accumulated."""

    def __init__(self, model: torch.nn.Module, optimizer: Any, steps: int) -> None:
        super().__init__()
        self.module, self.optimizer = model, optimizer
        self._accumulated, self._losses = steps, 0

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any, **options: Any) -> Any:
        """What the model returns."""
        return self.module(*args, **options)

    def backward(self, loss: Tensor, *args: Any, scale_wrt_gas: bool = True, **options: Any) -> Any:
        """Add the gradient of a loss, divided by how many are accumulated."""
        (loss / self._accumulated if scale_wrt_gas else loss).backward()  # type: ignore[no-untyped-call]
        return loss

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the next step is the optimizer's."""
        return (self._losses + 1) % self._accumulated == 0

    def step(self, *args: Any, **options: Any) -> None:
        """The optimizer's, if the losses are complete."""
        if self.is_gradient_accumulation_boundary() and self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad()
        self._losses += 1

    def get_lr(self) -> list[float]:
        """One learning rate, which has no effect here."""
        return [0.0]

    def get_global_grad_norm(self) -> None:
        """None is known before the first step."""

    def load_checkpoint(self, *args: Any, **options: Any) -> tuple[None, dict[str, Any]]:
        """Nothing was saved."""
        return None, {}

    def save_checkpoint(self, *args: Any, **options: Any) -> None:
        """Nothing is kept."""


def _initialize(
    args: Any = None, model: Any = None, optimizer: Any = None, model_parameters: Any = None,
    *others: Any, config: Any = None, config_params: Any = None, **options: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """DeepSpeed's ``initialize``."""
    told = config or config_params or getattr(args, "deepspeed_config", None) or {}
    settings = told if isinstance(told, Mapping) else json.loads(Path(told).read_text("utf-8"))
    if optimizer is None and model_parameters is not None:
        optimizer = torch.optim.SGD(model_parameters, lr=0.0)
    steps = settings.get("gradient_accumulation_steps", 1)
    engine = DeepSpeedEngine(model, optimizer, steps if isinstance(steps, int) else 1)
    return engine, optimizer, None, options.get("lr_scheduler")


def replace_engines(
    model: Callable[[str], Any], tokenizer: Callable[[str], Any], note: Callable[[str], None]
) -> None:
    """From now on both packages are stand-ins, whether they are installed or not.

    Args:
        model: The probe's model for what is loaded by a name.
        tokenizer: Likewise, its tokenizer.
        note: Tells the report that one of them is used.
    """

    class LLM(Vllm):  # a class: programs have it in their annotations, such as ``LLM | None``
        def __init__(self, model_name: str = "", *args: Any, **options: Any) -> None:
            note("a stand-in replaces vLLM: the probe's model draws the answers, by SamplingParams")
            name = str(options.pop("model", model_name))
            drawing = model(name)
            drawing.draws_by = ""  # SamplingParams says everything
            super().__init__(drawing, tokenizer(str(options.get("tokenizer") or name)), options)

    outputs = dict.fromkeys(("RequestOutput", "CompletionOutput"), SimpleNamespace)
    given = {"LLM": LLM, "SamplingParams": SamplingParams, "TokensPrompt": dict, "TextPrompt": dict}
    replace_package("vllm", given | outputs)
    optimizers = dict.fromkeys(("FusedAdam", "DeepSpeedCPUAdam"), torch.optim.AdamW)

    def initialize(*args: Any, **options: Any) -> tuple[Any, ...]:
        note("a stand-in replaces DeepSpeed: of its engine only the steps of the optimizer remain")
        return _initialize(*args, **options)

    steps = {"initialize": initialize, "DeepSpeedEngine": DeepSpeedEngine}
    replace_package("deepspeed", steps | optimizers)
