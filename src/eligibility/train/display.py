"""The live display: one line that is redrawn on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import time

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from eligibility.train.progress import Progress

# Drawing costs about a millisecond: seldom enough not to slow a training that lasts half a second.
_REDRAW_SECONDS = 0.1
_LINE_SECONDS = 2.0


class ProgressDisplay:
    """A callback of `Reinforce.learn` that shows where training stands, and each warning once."""

    def __init__(self, console: Console, steps: int, stop_at: float) -> None:
        self._console, self._steps, self._stop_at = console, steps, stop_at
        self._drawn = -math.inf
        self._last: Progress | None = None
        self._shown: Progress | None = None
        self._warned: set[str] = set()
        status = TextColumn("{task.fields[status]}")
        columns = [BarColumn(bar_width=24), status] if console.width >= 110 else [status]
        # A refreshing thread would compete with the training.
        self._bar = Bar(*columns, console=console, auto_refresh=False)
        self._task = self._bar.add_task("training", total=steps, status="")

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._last is not None and self._last is not self._shown:
            self._draw(self._last)
        if self._console.is_terminal:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Draw, unless that was done a moment ago."""
        self._last = progress
        if progress.warning is not None and progress.warning not in self._warned:
            self._warned.add(progress.warning)
            self._say(f"warning at step {progress.steps:,}: {progress.warning}")
        pause = _REDRAW_SECONDS if self._console.is_terminal else _LINE_SECONDS
        if time.monotonic() - self._drawn >= pause:
            self._draw(progress)

    def _draw(self, progress: Progress) -> None:
        self._drawn, self._shown = time.monotonic(), progress
        if not self._console.is_terminal:
            self._say(f"training  {self.status(progress)}")
            return
        done = self._steps if progress.solved else progress.steps
        self._bar.update(self._task, completed=done, status=self.status(progress))
        self._bar.refresh()

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def status(self, progress: Progress) -> str:
        """Return, entropy, gradient noise, speed and the time left at most, in one line."""
        speed = progress.steps / max(progress.training_seconds, 1e-9)
        goal = f" of {self._stop_at:g}" if math.isfinite(self._stop_at) else ""
        left = max(self._steps - progress.steps, 0) / speed if speed else 0.0
        ratio = progress.signal_to_noise
        noise = "" if math.isnan(ratio) else f"   signal/noise {ratio:.2g}"
        end = "solved" if progress.solved else f"at most {_duration(left)} left"
        return (
            f"return {progress.mean_return:.1f}{goal}   entropy {progress.entropy:.3f}{noise}   "
            f"{progress.steps:,} steps   {speed:,.0f}/s   {end}"
        )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
