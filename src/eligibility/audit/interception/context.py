"""The one context in which a program's randomness, environments and optimizers are ours.

Everything is put back when the context ends, whatever ended it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eligibility.audit import raised
from eligibility.audit.interception import environments, learning, processes, samplers, surroundings
from eligibility.audit.interception.own_rewards import replace_rewards
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.interception.running_moments import hold_running_moments
from eligibility.audit.interception.statements import follow
from eligibility.audit.noise import numpy_numbers
from eligibility.audit.noise.torch_numbers import TorchNoise
from eligibility.audit.patches import Patches


@contextmanager
def intercepted(recorder: Recorder, *, four_tuple: bool = False) -> Iterator[None]:
    """Within it, the program's draws, environments and optimizers report to ``recorder``."""
    with Patches() as patches:
        if recorder.job.raised:
            raised.raise_precision(patches)
        samplers.enumerate_draws(patches, recorder)
        numpy_numbers.follow_noise(patches, recorder.noise, lambda: recorder.follows_noise)
        environments.replace_environments(patches, recorder, four_tuple)
        if recorder.job.problem:
            replace_rewards(patches, recorder, recorder.job.problem)
        hold_running_moments(patches, recorder)
        learning.watch_optimizers(patches, recorder)
        surroundings.quieten(patches)
        turns = processes.stay_in_process(patches)
        noise = TorchNoise(recorder.noise, lambda: recorder.follows_noise)
        following = patches.enter_context(noise)
        recorder.is_parameter = following.release
        following.exponentiated = recorder.detached_ratios.exponentiated
        if recorder.job.followed:
            patches.enter_context(follow(recorder))
        yield
        turns.finish()
