"""TRL's trainers: the probe's model, prompts and rewards in the place of the program's."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch

from eligibility.audit.trainers.hub import Hub
from eligibility.audit.trainers.record import Record
from eligibility.audit.trainers.refused import Finished, Refused
from eligibility.audit.trainers.sampling import Sampler
from eligibility.audit.trainers.settings import fit, set_aside
from eligibility.audit.trainers.tiny import END, LENGTH, NAME, PROMPTS, SYMBOLS, make_tokenizer
from eligibility.audit.trainers.unsupported import SAMPLES_OTHERWISE
from eligibility.audit.user_code import user_place

TRAINERS = {"GRPOTrainer": "GRPOConfig", "RLOOTrainer": "RLOOConfig"}
_PASSED_OVER = ("SFT", "DPO", "Reward")  # what else a script may train, before
_WITHOUT_EFFECT = ("train", "evaluate", "save_model", "save_state", "push_to_hub")


class Trainers:
    """Stands between the program and TRL."""

    def __init__(self, record: Record, hub: Hub, sampler: Sampler) -> None:
        self._record, self._hub, self._sampler = record, hub, sampler

    def install(self) -> None:
        """Wrap the trainers and their configurations that the installed TRL has."""
        trl = importlib.import_module("trl")
        self._record.version = f"TRL {trl.__version__}"
        for name, settings in TRAINERS.items():
            if hasattr(trl, name):
                self._wrap_settings(getattr(trl, settings))
                self._wrap_trainer(getattr(trl, name))
        for name in _PASSED_OVER:
            if hasattr(trl, f"{name}Trainer"):
                self._wrap_settings(getattr(trl, f"{name}Config"), set_aside)
                self._pass_over(getattr(trl, f"{name}Trainer"))

    def _pass_over(self, trainer: Any) -> None:
        """Replace a trainer by one that trains nothing: the policy is the probe's anyway."""
        signature = inspect.signature(trainer.__init__)

        def init(self_: Any, *args: Any, **options: Any) -> None:
            given = signature.bind(self_, *args, **options).arguments
            model = given.get("model")
            self_.model = model if self._is_probe(model) else self._hub.model()
            self_.args, self_.processing_class = given.get("args"), given.get("processing_class")
            if given.get("peft_config") is not None:
                self._fit_adapter(given["peft_config"])
                peft: Any = importlib.import_module("peft")
                self_.model = peft.get_peft_model(self_.model, given["peft_config"])
            self._record.note(f"{trainer.__name__} is passed over: the policy is the probe's")

        trainer.__init__ = init
        for name in _WITHOUT_EFFECT:
            setattr(trainer, name, lambda *args, **options: None)

    def _wrap_settings(self, settings: Any, fit: Callable[[Any, Record], None] = fit) -> None:
        check = settings.__post_init__

        def post_init(self_: Any) -> None:
            fit(self_, self._record)
            check(self_)

        settings.__post_init__ = post_init

    def _wrap_trainer(self, trainer: Any) -> None:
        begin, train = trainer.__init__, trainer.train
        signature = inspect.signature(begin)

        @functools.wraps(begin)
        def init(self_: Any, *args: Any, **options: Any) -> None:
            bound = signature.bind(self_, *args, **options)
            self._replace(bound.arguments)
            if bound.arguments.get("args") is not None:
                set_aside(bound.arguments["args"], self._record)
            begin(*bound.args, **bound.kwargs)
            self._prepare(self_)

        @functools.wraps(train)
        def run(self_: Any, *args: Any, **options: Any) -> None:
            self._record.trainer = type(self_).__name__
            self._record.file, self._record.line = user_place()
            # a shuffle would be one more random choice: which rows share a micro-batch
            torch.randperm = lambda n, **options: torch.arange(n)
            train(self_)
            raise Finished

        trainer.__init__, trainer.train = init, run

    def _replace(self, given: dict[str, Any]) -> None:
        """The program's arguments, with the probe's in the place of what it cannot have here."""
        for name, reason in SAMPLES_OTHERWISE.items():
            if given.get(name):
                raise Refused(reason)
        model = given.get("model")
        if not isinstance(model, str) and not self._is_probe(model):
            self._record.note(
                f"the program's own {type(model).__name__} is replaced by the probe's"
            )
            given["model"] = self._hub.model()
        rows = _first_rows(given.get("train_dataset"))
        given["train_dataset"] = _probe_data(rows)
        given["processing_class"] = make_tokenizer()
        given["reward_funcs"] = self._rewards(given.get("reward_funcs"))
        for name in ("eval_dataset", "reward_processing_classes", "quantization_config"):
            given.pop(name, None)
        given["optimizers"] = (None, None)
        if given.get("peft_config") is not None:
            self._fit_adapter(given["peft_config"])

    def _is_probe(self, model: Any) -> bool:
        return getattr(getattr(model, "config", None), "_name_or_path", "") == NAME

    def _fit_adapter(self, adapter: Any) -> None:
        """An adapter on layers that the tiny model has."""
        names = adapter.target_modules
        known = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
        if not isinstance(names, str) and names is not None and not set(names) & known:
            self._record.note(f"the adapter's target_modules={sorted(names)} are all linear layers")
            adapter.target_modules = "all-linear"

    def _rewards(self, functions: Any) -> list[Callable[..., Any]]:
        listed = functions if isinstance(functions, list) else [functions]
        if functions is None or not listed:
            raise Refused("the trainer has no reward function")
        return [self._reward(function, k) for k, function in enumerate(listed)]

    def _reward(self, function: Any, number: int) -> Callable[..., Any]:
        """Call the program's function, and give the probe's number for its result."""
        named = getattr(function, "__name__", type(function).__name__)
        plain = callable(function) and not isinstance(function, (str, torch.nn.Module))
        plain = plain and not inspect.iscoroutinefunction(function)
        if not plain:
            self._record.note(
                f"the reward {str(function)[:40]!r} is not called; the probe's replaces it"
            )

        def reward(prompts: Any, completions: Any, **columns: Any) -> list[float]:
            if plain:
                try:
                    function(prompts=prompts, completions=completions, **columns)
                except Exception as error:  # the user's function, on answers that it never saw
                    self._record.note(
                        f"the reward {named} failed on the probe's answers "
                        f"({type(error).__name__}: {str(error)[:80]}); its result is replaced"
                    )
            return [
                self._sampler.sign
                * generic_reward(number, PROMPTS.index(_text(p)), _tokens(_text(c)))
                for p, c in zip(prompts, completions, strict=True)
            ]

        reward.__name__ = named
        return reward

    def _prepare(self, trainer: Any) -> None:
        """A generic policy; the reference, its rewards, and the answers that are drawn."""
        trainer.model.double()
        wake_adapters(trainer.model)
        weights = getattr(trainer, "reward_weights", None)
        count = len(trainer.reward_funcs)
        factors = [1.0] * count if weights is None else [float(w) for w in weights]
        self._sampler.rewards = lambda prompt, answer: sum(
            factor * generic_reward(k, prompt, answer) for k, factor in enumerate(factors)
        )
        reference = getattr(trainer, "ref_model", None)
        if reference is not None:
            self._sampler.reference = reference.double()
        elif self._record.kl_coefficient and hasattr(trainer.model, "disable_adapter"):
            self._sampler.reference = WithoutAdapter(trainer.model)


def wake_adapters(model: Any) -> None:
    """Give numbers to trained parameters that are all 0, as those of an adapter are at first."""
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        if parameter.requires_grad and not parameter.any():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.data.copy_(0.3 * noise)


class WithoutAdapter:
    """An adapted model as it was before: the reference of a trainer with an adapter."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, **inputs: Any) -> Any:
        adapters: Any = importlib.import_module("peft.tuners.tuners_utils").BaseTunerLayer
        layers = [each for each in self._model.modules() if isinstance(each, adapters)]
        for layer in layers:
            layer.enable_adapters(False)
        try:
            with torch.no_grad():
                return self._model(**inputs)
        finally:
            for layer in layers:
                layer.enable_adapters(True)


def generic_reward(function: int, prompt: int, answer: tuple[int, ...]) -> float:
    """A different number for each: a multiple of 1/64, which single precision holds exactly."""
    seed = sum(x * 31**i for i, x in enumerate((*answer, len(answer), prompt, function, 1)))
    drawn = torch.randint(-96, 97, (), generator=torch.Generator().manual_seed(seed))
    return int(drawn) / 64


def _text(value: Any) -> str:
    """A prompt or an answer as text, also where it is a list of messages."""
    if isinstance(value, str):
        return value
    return str(value[-1]["content"])


def _tokens(text: str) -> tuple[int, ...]:
    """The answer of a text: it has ended if it is shorter than the longest."""
    words = [SYMBOLS.index(symbol) for symbol in text if symbol != SYMBOLS[END]]
    return (*words, END) if len(words) < LENGTH else tuple(words)


def _first_rows(data: Any) -> list[dict[str, Any]]:
    """A row for each prompt, of whatever the program passes as data."""
    if data is None:
        raise Refused("the trainer has no train_dataset")
    listed = data if hasattr(data, "__iter__") else map(data.__getitem__, range(len(data)))
    rows = list(islice(listed, len(PROMPTS)))
    if not rows:
        raise Refused("the train_dataset has no rows")
    return [dict(rows[k % len(rows)]) for k in range(len(PROMPTS))]


def _probe_data(rows: list[dict[str, Any]]) -> Any:
    """The probe's prompts, as texts or messages as the program has them; its other columns stay."""
    datasets = importlib.import_module("datasets")
    chat = isinstance(rows[0].get("prompt"), list)
    plain = (str, int, float, bool)
    kept = [
        k
        for k, v in rows[0].items()
        if isinstance(v, plain) and k not in ("prompt", "image", "images")
    ]
    made = []
    for prompt, row in zip(PROMPTS, rows, strict=True):
        asked: Any = [{"role": "user", "content": prompt}] if chat else prompt
        columns = {k: str(row[k]) if isinstance(row[k], str) else row[k] for k in kept}
        made.append({"prompt": asked, **columns})
    return datasets.Dataset.from_list(made)
