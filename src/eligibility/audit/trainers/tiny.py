"""A causal language model of two tokens with random weights, and a tokenizer that reads any text.

An answer consists of words and of the token that ends it. A third token stands in prompts only: it
makes them differ, and its probability is exactly 0 in double precision; so is that of the fourth,
which pads where a program does not pad with the end.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from eligibility.audit.trainers.refused import Refused

END, WORD, PROMPT_ONLY, PAD = 0, 1, 2, 3
VOCABULARY = 2  # tokens that can be drawn
LENGTH = 3  # tokens of the longest answer
GROUP = 2  # answers to each prompt
SYMBOLS = ("⏹", "ω", "ß", "▢")
PROMPTS = ("ß", "ßωß")  # of two lengths, so that padding matters
POLICY_SEED, REFERENCE_SEED = 11, 7
NAME = "eligibility/probe"
_TEXT = 32_768  # tokens of the longest text, as tokenizers of real models say; none is cut off
# Those of chat models end what an assistant has said with the end token, too.
_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if loop.last and message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
# The head reads the same first feature in every state of every model, so the tokens that are never
# drawn have the same logit everywhere, −400: a ratio of two models is finite at padding too.
_FIRST_FEATURE, _READ, _NEVER = 1.0, 0.1, -4000.0


# How configurations of other families call theirs.
_OTHER_NAMES = {
    "n_embd": "hidden_size",
    "d_model": "hidden_size",
    "dim": "hidden_size",
    "word_embed_proj_dim": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "n_ctx": "max_position_embeddings",
}


class EndToken(int):
    """The token that ends an answer, and a list of it: configurations have either."""

    def __contains__(self, token: object) -> bool:
        return token == self

    def __iter__(self) -> Iterator[int]:
        return iter((int(self),))


_depth: list[int] = []


def making() -> bool:
    """Whether the probe is making a model of its own at the moment."""
    return bool(_depth)


def make_model(seed: int, kind: Any = None) -> Any:
    """A Llama of one layer with random weights in double precision.

    Args:
        seed: Of its weights.
        kind: A subclass of transformers' Llama to make it of; None: that itself.
    """
    transformers: Any = importlib.import_module("transformers")
    config = transformers.LlamaConfig(
        vocab_size=len(SYMBOLS),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=END,
        tie_word_embeddings=False,
        initializer_range=0.5,
        architectures=["LlamaForCausalLM"],
    )
    config._name_or_path = NAME
    for name, usual in _OTHER_NAMES.items():
        setattr(config, name, getattr(config, usual))
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    _depth.append(1)
    model = (kind or transformers.LlamaForCausalLM)(config).double()
    _depth.pop()
    torch.set_rng_state(state)
    model.generation_config.eos_token_id = EndToken(END)
    model.generation_config.pad_token_id = END
    _forbid_other_tokens(model)
    model.model.norm.register_forward_hook(_fix_first_feature)
    model.model.embed_tokens.register_forward_pre_hook(_refuse_other_tokens)
    return model


def with_methods_of(own: Any) -> Any:
    """A Llama that has what a program's own class of language models adds to transformers'.

    It samples with the class's own `generate`, if it has one, and is called with its arguments. It
    returns no cache, whose form would be another: the rows are read whole each time.
    """
    transformers: Any = importlib.import_module("transformers")
    llama = transformers.LlamaForCausalLM
    signature = inspect.signature(own.forward)

    def forward(model: Any, *args: Any, **options: Any) -> Any:
        given = signature.bind(model, *args, **options).arguments
        _, rows, *_ = given.values()
        known = {name: given[name] for name in _READ_BY_LLAMA if given.get(name) is not None}
        return llama.forward(model, input_ids=rows, use_cache=False, **known)

    added = {
        name: value
        for base in reversed(own.__mro__)
        if not issubclass(llama, base)
        for name, value in vars(base).items()
        if not name.startswith("_") and name not in _MADE
    }
    return type(own.__name__, (llama,), added | {"forward": forward})


_READ_BY_LLAMA = ("attention_mask", "position_ids", "logits_to_keep")
_MADE = ("forward", "config_class", "base_model_prefix")  # they belong to the layers it has


def _refuse_other_tokens(embedding: Any, args: tuple[torch.Tensor, ...]) -> None:
    """A program that writes numbers of tokens itself means those of another tokenizer."""
    highest = int(args[0].max()) if args[0].numel() else 0
    if highest >= len(SYMBOLS):
        raise Refused(
            f"the program gives the model token {highest}, and the probe's tokenizer has "
            f"{len(SYMBOLS)} tokens: get token ids from the tokenizer, or audit its "
            "loss with audit_token_loss"
        )


@torch.no_grad()
def _forbid_other_tokens(model: Any) -> None:
    """Let the head's first feature speak against all tokens but an answer's.

    The head does not read the first feature of the layers before. That they keep it as it is
    embedded makes the model the one with which the published figures were measured.
    """
    layer = model.model.layers[0]
    model.model.embed_tokens.weight[:, 0] = _FIRST_FEATURE
    layer.self_attn.o_proj.weight[0] = 0.0
    layer.mlp.down_proj.weight[0] = 0.0
    model.lm_head.weight[:, 0] = 0.0
    model.lm_head.weight[VOCABULARY:] = 0.0
    model.lm_head.weight[VOCABULARY:, 0] = _NEVER


def _fix_first_feature(norm: Any, args: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Keep it the same, whatever the layers before have made of it."""
    return torch.cat([torch.full_like(hidden[..., :1], _READ), hidden[..., 1:]], -1)


def make_tokenizer(base: Any = None) -> Any:
    """One that knows four symbols; a run of any other characters is read as one of a prompt's.

    Args:
        base: A subclass of transformers' fast tokenizer to make it of; None: that itself.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    transformers: Any = importlib.import_module("transformers")

    end, _, other, _ = SYMBOLS
    made = Tokenizer(
        models.WordLevel({symbol: i for i, symbol in enumerate(SYMBOLS)}, unk_token=other)
    )
    made.normalizer = normalizers.Replace(Regex(f"[^{''.join(SYMBOLS)}]+"), other)
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    tokenizer = (base or transformers.PreTrainedTokenizerFast)(
        tokenizer_object=made,
        eos_token=end,
        pad_token=end,
        padding_side="left",
        model_max_length=_TEXT,
        model_input_names=["input_ids", "attention_mask"],
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
