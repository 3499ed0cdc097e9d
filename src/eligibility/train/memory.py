"""A recurrent layer: what it remembers starts at zero with each episode and ends with it.

==========  =====================================================================================
acting      ``step``: the inputs and states of B environments, to outputs and their next states
an update   ``forward``: the same over all steps of some episodes, differentiated to the first one
==========  =====================================================================================

Nothing is truncated, and no state outlives an update.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_CELLS: dict[str, type[nn.GRUCell | nn.LSTMCell]] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}
# The bias that decides how much a first network keeps of what it knows: σ(2) = 88 % at each step.
# With 0 it is half, and a cue of thirty steps ago is a billionth of what it was.
_KEEPING = 2.0


class Memory(nn.Module):
    """``[N, inputs]`` to ``[N, width]`` by a GRU or an LSTM.

    Weights are normal with variance 1/fan-in and biases 0, as in the other layers, but the bias of
    an LSTM's forget gate, or of a GRU's update gate, is 2: a first network remembers. A state is
    the outputs, and behind them the cells of an LSTM.

    References:
        Hochreiter & Schmidhuber 1997, Neural Computation 9:1735-1780; Cho et al. 2014, "Learning
        phrase representations using RNN encoder-decoder". The bias: Gers, Schmidhuber & Cummins
        2000, Neural Computation 12:2451-2471; Jozefowicz et al. 2015, "An empirical exploration of
        recurrent network architectures", §2.2.
    """

    def __init__(self, kind: str, inputs: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=()):
            self.cell = _CELLS[kind](inputs, width)
        self.state_size = width if kind == "gru" else 2 * width
        with torch.no_grad():
            for name, weight in self.cell.named_parameters():
                if weight.ndim > 1:
                    weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
                else:
                    weight.zero_()
                if name == "bias_ih":
                    weight[width : 2 * width] = _KEEPING  # of both kinds the second gate

    def forward(self, inputs: Tensor, episode: Tensor | None = None) -> Tensor:
        """The outputs of all steps of some episodes, ``[N, inputs]`` in the order of time.

        That is the first steps of all episodes, then the second ones of those that have one, … Of
        each step ``episode`` ``[N]`` has the number, rising among those of one time; None: there is
        one.
        """
        if episode is None:
            episode = torch.zeros(len(inputs), dtype=torch.int64)
        later = torch.nn.functional.pad(episode[1:] <= episode[:-1], (1, 0))  # than the row above
        sizes = torch.bincount(later.cumsum(0)).tolist()
        state, going, outputs = self.start(sizes[0]), episode[: sizes[0]], []
        for row, episodes in zip(
            torch.split(inputs, sizes), torch.split(episode, sizes), strict=True
        ):
            if len(episodes) < len(going):
                state, going = state[torch.isin(going, episodes)], episodes
            output, state = self.step(row, state)
            outputs.append(output)
        return torch.cat(outputs)

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs ``[B, width]`` and the next states ``[B, state_size]``."""
        if isinstance(self.cell, nn.LSTMCell):
            outputs, cells = self.cell(inputs, state.chunk(2, -1))
            return outputs, torch.cat([outputs, cells], -1)
        outputs = self.cell(inputs, state)
        return outputs, outputs

    def start(self, number: int) -> Tensor:
        """The states of that many episodes that begin: zeros ``[number, state_size]``."""
        weight: Tensor = next(self.cell.parameters())
        return weight.new_zeros(number, self.state_size)
