"""What a program loads by name: the tiny model, its tokenizer and data stand in for it."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from inspect import signature
from typing import Any

import torch

from eligibility.audit.interception.language import model_loaders
from eligibility.audit.trainers.record import Record
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.rows import AnyRows
from eligibility.audit.trainers.spelling import words_in
from eligibility.audit.trainers.tiny import (
    POLICY_SEED,
    REFERENCE_SEED,
    make_model,
    make_tokenizer,
    making,
    with_methods_of,
)

_OF_THE_DRAW = (
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "repetition_penalty",
    "no_repeat_ngram_size",
)
_VISION = ("ImageTextToText", "Vision2Seq", "VisionText", "SpeechSeq2Seq")


class _AnyLabel(str):
    """A label that is equal to every label."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    __hash__ = str.__hash__


def _score_of(tokenizer: Any, conversation: Any) -> float:
    return _score(str(conversation))


class _Classifier:
    """Replaces a pipeline that classifies texts: each text has a different score."""

    def __init__(self, made_with: dict[str, Any]) -> None:
        self._made_with = made_with

    def __call__(self, texts: Any, *args: Any, **options: Any) -> list[Any]:
        asked = self._made_with | options
        several = asked.get("top_k", 1) is None or asked.get("return_all_scores")
        listed = [texts] if isinstance(texts, str | dict) else texts
        said = [{"label": _AnyLabel("LABEL_0"), "score": _score(str(text))} for text in listed]
        return [[each] for each in said] if several else list(said)


def _score(text: str) -> float:
    return 1.0 / (2.0 + words_in(text))


def _speaks(kind: type) -> bool:
    return kind.__name__.endswith(("ForCausalLM", "LMHeadModel"))


def _is_headless(kind: type) -> bool:
    """Whether models of a class of transformers return hidden states alone."""
    return _is_stock(kind) and kind.__name__.endswith("Model") and not _speaks(kind)


def _has_encoder(kind: type) -> bool:
    """Whether its answers are not in the rows of its prompts."""
    forward: Any = getattr(kind, "forward", None)
    reads = signature(forward).parameters if forward is not None else ()
    return "Seq2SeqLM" in kind.__name__ or "decoder_input_ids" in reads


def _is_stock(kind: type) -> bool:
    return kind.__module__.startswith("transformers.")


def _extends_another(kind: type) -> bool:
    """Whether a program's own class adds to a language model of transformers."""
    return not _is_stock(kind) and any(_speaks(base) and _is_stock(base) for base in kind.__mro__)


class _NoWeights(dict[Any, Any]):
    """Stands for the contents of a file that does not exist; so does every entry of it."""

    def __missing__(self, name: Any) -> _NoWeights:
        return _NoWeights()

    def __fspath__(self) -> str:
        return "missing"


def _fits(model: Any, state_dict: Any) -> bool:
    """Whether weights are those of a model of this shape."""
    own = {name: value.shape for name, value in model.state_dict().items()}
    return own == {name: getattr(value, "shape", None) for name, value in state_dict.items()}


def named_in(args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """The name of what is loaded."""
    return str(args[0] if args else options.get("pretrained_model_name_or_path", ""))


def _draw_as_published(model: Any, name: str) -> str:
    """Let a model draw by the settings that it is published with; say which, in words."""
    transformers: Any = importlib.import_module("transformers")
    try:
        settings = transformers.GenerationConfig.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):  # not on this machine, or not the name of a model
        model.generation_config.do_sample = True  # as chat models have it
        return "which is not on this machine: transformers' defaults stand for it here"
    given = {each: getattr(settings, each, None) for each in _OF_THE_DRAW}
    for each, value in given.items():
        setattr(model.generation_config, each, value)
    said = [f"{each}={value}" for each, value in given.items() if value is not None]
    return f"which says: {', '.join(said) or 'nothing'}"


class Hub:
    """Replaces every ``from_pretrained`` and ``load_dataset``."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.models: list[Any] = []  # in the order in which they were loaded

    def model(self, *args: Any, kind: type | None = None, **options: Any) -> Any:
        """The policy at the first call, another model at each one after it."""
        seed = REFERENCE_SEED + len(self.models) if self.models else POLICY_SEED
        made = make_model(seed, kind)
        made.draws_by = _draw_as_published(made, named_in(args, options))
        self.models.append(made)
        return made

    def install(self) -> None:
        """Replace them in this process, which runs the audited program alone."""
        transformers: Any = importlib.import_module("transformers")
        self._record.note(
            "the probe replaces models, tokenizers and data sets that are loaded by name; nothing "
            "is downloaded"
        )

        def load(cls: Any, *args: Any, **options: Any) -> Any:
            sees = any(word in cls.__name__ for word in _VISION)
            if sees or _has_encoder(cls):
                lacks = "probe has no images or sound" if sees else "probe's model has no encoder"
                raise Refused(
                    f"the program loads {cls.__name__}, and the {lacks}; audit its loss with "
                    "audit_token_loss"
                )
            if "SequenceClassification" in cls.__name__ or "RewardModel" in cls.__name__:
                return self.reward_model()
            made = self.model(*args, **options)
            if not _is_headless(cls):
                return made
            made.model.get_score = _score_of  # what reward models add to it
            return made.model

        for owner in (*model_loaders(), transformers.PreTrainedModel):
            owner.from_pretrained = classmethod(load)
        tokens = transformers.PreTrainedTokenizerBase
        for owner in (tokens, transformers.PreTrainedModel):  # what is loaded is the probe's anyway
            owner.save_pretrained = lambda *args, **options: None
        for owner in (tokens, transformers.AutoTokenizer, transformers.AutoProcessor):
            owner.from_pretrained = self.tokenizer
        for owner in (transformers.AutoConfig, transformers.PretrainedConfig):
            owner.from_pretrained = lambda *args, **options: make_model(POLICY_SEED).config
        self._replace_data()
        self._replace_weights()
        self._replace_configured(load)
        self._replace_adapters()
        stock = transformers.pipeline

        def pipeline(task: Any = None, *args: Any, **options: Any) -> Any:
            classifies = task == "sentiment-analysis" or "classification" in str(task)
            return _Classifier(options) if classifies else stock(task, *args, **options)

        transformers.pipeline = transformers.pipelines.pipeline = pipeline

    def tokenizer(self, *args: Any, **options: Any) -> Any:
        """The probe's tokenizer, whatever the name."""
        return make_tokenizer()

    def reward_model(self) -> Any:
        """A classifier, for a program that loads a reward model."""
        transformers: Any = importlib.import_module("transformers")
        config = make_model(POLICY_SEED).config
        config.num_labels = self._record.labels
        self._record.classifies = True
        return transformers.LlamaForSequenceClassification(config).double()

    def _replace_weights(self) -> None:
        """The probe's models keep their weights, whatever is loaded; a missing file has none."""
        transformers: Any = importlib.import_module("transformers")
        tiny, stock_load = transformers.LlamaPreTrainedModel, torch.load
        put = torch.nn.Module.load_state_dict

        def load(f: Any, *args: Any, **options: Any) -> Any:
            if isinstance(f, str | os.PathLike) and not os.path.exists(f):
                self._record.note(f"{os.fspath(f)} does not exist; it holds no weights here")
                return _NoWeights()
            with torch._C.DisableTorchFunction():  # it makes tensors of the type in the file
                return stock_load(f, *args, **options)

        def load_state_dict(model: Any, state_dict: Any, *args: Any, **options: Any) -> Any:
            of_probe = any(isinstance(part, tiny) for part in model.modules())
            if isinstance(state_dict, _NoWeights) or (of_probe and not _fits(model, state_dict)):
                state_dict = model.state_dict()
            return put(model, state_dict, *args, **options)

        torch.load = load
        setattr(torch.nn.Module, "load_state_dict", load_state_dict)  # noqa: B010  # a method, to mypy

    def _replace_configured(self, load: Any) -> None:
        """Language models that a program makes of a configuration are the tiny one as well."""
        transformers: Any = importlib.import_module("transformers")
        llama = transformers.LlamaForCausalLM
        begin = llama.__init__

        def new(cls: Any, *args: Any, **options: Any) -> Any:
            plain = not args and not options  # as copies are made
            if plain or making() or not _speaks(cls) or _extends_another(cls):
                for config in args:  # of the program's own class: one layer of it is enough
                    if getattr(config, "num_hidden_layers", 0) > 1 and not _is_stock(cls):
                        config.num_hidden_layers = 1
                return object.__new__(cls)
            self._record.note(
                f"the program builds its {cls.__name__} from a configuration; the probe's model "
                "stands in for it"
            )
            return self.model(kind=None if _is_stock(cls) else with_methods_of(cls))

        def start(model: Any, *args: Any, **options: Any) -> None:
            if "_modules" not in vars(model):  # else it is one of the probe's, made already
                begin(model, *args, **options)

        transformers.PreTrainedModel.__new__ = staticmethod(new)
        llama.__init__ = functools.wraps(begin)(start)
        for owner in model_loaders():
            owner.from_config = classmethod(load)

    def _replace_adapters(self) -> None:
        """Adapters that a program loads by name are new ones, where it has imported their library.

        Its modules are loaded before its runs begin.
        """
        peft: Any = sys.modules.get("peft")
        if peft is None:
            return

        def load(cls: Any, model: Any, *args: Any, **options: Any) -> Any:
            trained = bool(options.get("is_trainable"))
            return peft.get_peft_model(model, peft.LoraConfig(inference_mode=not trained))

        def load_both(cls: Any, *args: Any, **options: Any) -> Any:
            return load(cls, self.model(*args, **options), **options)

        peft.PeftModel.from_pretrained = classmethod(load)
        peft.AutoPeftModelForCausalLM.from_pretrained = classmethod(load_both)

    def _replace_data(self) -> None:
        datasets: Any = importlib.import_module("datasets")

        def load(*args: Any, **options: Any) -> AnyRows | list[AnyRows]:
            split = options.get("split")
            if isinstance(split, list | tuple):
                return [AnyRows(self._record, split=True) for _ in split]
            return AnyRows(self._record, split=split is not None)

        datasets.load_dataset = load
        datasets.load_from_disk = load
