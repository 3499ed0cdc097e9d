"""What a program's own loop does in a run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.trainers.answers import Tokens
from eligibility.audit.trainers.branches import GREEDY, Branches, InBranch
from eligibility.audit.trainers.draws import (
    drawn_before,
    draws_tokens,
    has_one_length,
    with_a_certain_end,
    without_padding,
)
from eligibility.audit.trainers.in_order import by_token, places_in
from eligibility.audit.trainers.many_tokens import MANY
from eligibility.audit.trainers.models import is_without_adapters
from eligibility.audit.trainers.next_token import one_token_probabilities, setting
from eligibility.audit.trainers.operations import BEHAVIOUR, POLICY, REFERENCE, SAMPLED
from eligibility.audit.trainers.placing import writes_an_end
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.sampling import (
    as_asked_for,
    asked_for,
    masks_padding,
    padded,
    with_likeliest,
)
from eligibility.audit.trainers.spelling import pad_on_the_usual_side
from eligibility.audit.trainers.tiny import NAME, SYMBOLS
from eligibility.audit.user_code import user_place

_MANY = 1024  # rows that a program may sample before its optimizer steps


class Runs(Branches):
    """What the program does, in the first run and in the others."""

    def met(self, func: Any, args: Any, options: Any, result: Any) -> Any:
        """A call of torch's: a draw, or a tensor of rewards."""
        if func in (torch.multinomial, torch.Tensor.multinomial):
            return self._drawn(args[0] if args else options["input"], result)
        if self.branch is not None:
            self._noise.met(func, args, result)
            if writes_an_end(func, args, result, self.draws):
                self._written = user_place()
        if not self._busy:  # else transformers asks, not the program
            self._order_of_tokens.met(func, args, options, result)
        if func in (torch.argmax, torch.Tensor.argmax):
            logits = self._noise.logits(args[0] if args else None)
            if logits is not None:
                kept = (*logits.shape[:-1], 1)
                return self._drawn(logits.softmax(-1), result.reshape(kept)).reshape(result.shape)
        if func in (torch.tensor, torch.as_tensor):
            result = self.scores.of_tensor(args[0] if args else options.get("data"), result)
        elif func is torch.Tensor.__setitem__:
            self.scores.of_item(*args)
        if self._recorder is not None and not self._inside and not self._busy:
            self._recorder.met(func, args, options, result)
        return result

    def goes_backward(self, loss: Tensor) -> None:
        """A loss, before its gradient is computed."""
        if loss.numel() == 1:
            self._values.append(float(loss.detach()))
        if self._recorder is not None:
            with self.models.unread():
                self._recorder.goes_backward(loss)

    def forwards(self, model: Any) -> None:
        """A model of the probe's is about to run."""
        self._latest = model
        self.models.follow(model)
        if self.branch is None and self._sampling is None and not self._busy:
            self._arrive({})  # before what it computes is kept for the gradient
        if self._many is not None:
            self._many.add_to(model)
        if self.draws.given:
            off = is_without_adapters(model)
            self._used[id(model)] = self._used.get(id(model), False) or off
        self._inside = True

    def has_run(self, model: Any, output: Any) -> None:
        """Its pass is over."""
        self._inside = False
        rows = self.models.rows(model)
        if self._certain_end and rows is not None and rows.last is not None:
            output.logits = with_a_certain_end(output.logits, rows.last)
        if self._moved and is_without_adapters(model):
            output.logits = output.logits + self._moved * torch.arange(output.logits.shape[-1])
        if self._recorder is None or self._busy or rows is None:
            return
        logits = getattr(output, "logits", None)
        if id(model) == self._trained and not is_without_adapters(model):
            attached = logits is not None and logits.requires_grad
            self._recorder.scored(logits, POLICY if attached else BEHAVIOUR, rows.last)
        else:
            acted = any(model is other for other in (self._sampling, *self._followers))
            self._recorder.scored(logits, BEHAVIOUR if acted else REFERENCE, rows.last)

    def generated(self, model: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """In place of transformers' ``generate``."""
        if model.config._name_or_path != NAME:
            raise Refused(
                f"the program builds its {type(model).__name__} from a configuration, and the "
                "audit replaces only models that are loaded by name; load it with "
                "from_pretrained, or audit its loss with audit_token_loss"
            )
        ids, given = asked_for(args, options)
        samples = setting(given, "do_sample")
        if not (model.generation_config.do_sample if samples is None else samples):
            if (setting(given, "num_return_sequences") or 1) > 1:
                raise Refused(GREEDY)
            return self._greedy(model, ids, given)
        self._latest = model
        self.models.follow(model)  # it may never run as a whole but here
        self._certain_end |= has_one_length(given)
        usual = model.generation_config.pad_token_id
        pad = setting(given, "pad_token_id")
        pad = usual if pad is None else pad
        self._unmasked |= not masks_padding(args, options, pad)
        self._arrive(given)
        prompts = [without_padding(row) for row in ids.tolist()]
        chosen = self.draws.next_rows(prompts)
        if self._many is not None:
            self._many.add_to(model)
            self._busy = True
            self._many.drawn_by(self.generate, model, prompts[0], given)
            self._busy = False
        if self.branch is not None and not self._options:  # the lead has not seen the call
            self._note_probabilities(model, given)
        pad = usual if self._certain_end else pad
        sequences = padded(ids, chosen, pad)
        if self._recorder is not None:
            self._recorder.given(sequences, SAMPLED)
        unscored = self._many is not None
        return as_asked_for(model, sequences, ids.shape[1], given, without_scores=unscored)

    def _greedy(self, model: Any, ids: Tensor, options: Any) -> Any:
        """The likeliest tokens: nothing is drawn, so no answer of the outcome is given."""
        self._greedy_alone = not self.draws.given
        self._busy = True
        rows = with_likeliest(model, ids)
        self._busy = False
        return as_asked_for(model, rows, ids.shape[1], options)

    def _note_probabilities(self, model: Any, options: dict[str, Any]) -> None:
        draws = self.draws
        rows = zip(draws.prompts[-draws.called :], draws.given[-draws.called :], strict=True)
        self._busy = True
        for prompt, answer in set(rows):
            for state in (answer[:t] for t in range(len(answer))):
                if (prompt, state) not in draws.probabilities:
                    share = self._one_token(model, (*prompt, *state), options)
                    draws.probabilities[prompt, state] = share
        self._busy = False

    def _one_token(self, model: Any, tokens: Tokens, options: dict[str, Any]) -> list[float]:
        return one_token_probabilities(self.generate, model, tokens, options)

    def _drawn(self, probs: Tensor, result: Tensor) -> Tensor:
        known = self.models.rows(self._latest)
        leading = self._busy or (self.branch is None and self._sampling is not None)
        last = known.last if known is not None else None
        width = len(SYMBOLS) if self._many is None else MANY
        order = self._order_of_tokens.of(probs)
        whole = probs if order is None else by_token(probs, order, width)
        if leading or last is None or result.shape[-1] != 1 or not draws_tokens(last, whole, width):
            return result
        if drawn_before(last) == 0:
            self._arrive({})
            if self._many is not None:
                self._many.drawn_from(whole, self._order_of_tokens.place)
        tokens = self.draws.tokens(last, whole).reshape(result.shape)
        if self._recorder is not None:
            self._recorder.given(tokens, SAMPLED)
        return tokens if order is None else places_in(order, tokens)

    # The process that leads: it stands where the first token is sampled, and never goes on.

    def _arrive(self, options: dict[str, Any]) -> None:
        """Rows are about to be sampled: leave this to branches; in one, go on, or end it."""
        draws = self.draws
        if self.branch is not None:
            if draws.complete or self._pass.steps or self._tables:
                self._send()  # without a step the program makes no update from these answers
            if len(draws.given) > _MANY:
                self._send(idle=f"the program samples more than {_MANY} answers without a step")
            return
        if len(draws.calls) < self._skipped or not draws.between_calls:
            return
        if id(self._latest) in self._passed:
            return
        self._options, self._sampling = options, self._latest
        pad_on_the_usual_side()
        with suppress(InBranch):
            self._lead()
            self._options, self._sampling = {}, None

    def _lead(self) -> None:
        """Lead the branches, if these are the rows that the program trains on."""
        raise NotImplementedError
