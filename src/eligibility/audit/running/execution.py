"""One run of a program under interception, and how it ended."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from eligibility.audit import choices
from eligibility.audit.interception.context import intercepted
from eligibility.audit.interception.language import LanguageProgram, misses_launcher
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.job import Job
from eligibility.audit.precision import DTYPE_WORDS
from eligibility.audit.trace import LANGUAGE, NO_ENVIRONMENT, OPTIMIZERS, Trace
from eligibility.audit.user_code import caught_in, raised_at

_ENDS: dict[type[BaseException], str] = {
    choices.PathComplete: "updated", choices.NoEnvironmentError: NO_ENVIRONMENT,
    choices.TooManyChoicesError: "choices", LanguageProgram: LANGUAGE,
}  # fmt: skip


def execute(program: Callable[[], object], job: Job, *, four_tuple: bool = False) -> Trace:
    """Run ``program`` as ``job`` says and return what it left behind; raises nothing itself."""
    recorder = Recorder(job)
    outcome, detail, place = "finished", "", ("", 0)
    try:
        with warnings.catch_warnings(), intercepted(recorder, four_tuple=four_tuple):
            warnings.simplefilter("ignore")
            program()
            recorder.note(recorder.hand_updates.check())
    except tuple(_ENDS) as end:
        outcome = _ENDS[type(end)]
    except choices.TooMuchWorkError as error:
        outcome, detail = "work", str(error)
    except choices.UpdatedByHandError as error:
        outcome, detail, place = "error", str(error), error.place
    except SystemExit as error:
        if error.code not in (None, 0):
            outcome, detail = "error", f"the program left with exit status {error.code}"
            caught = caught_in(error)
            if caught is not error:
                detail += f" after {type(caught).__name__}: {caught}"
                place = raised_at(caught)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the program ends by, its trace is wanted
        outcome, detail = "error", f"{type(error).__name__}: {error}"
        place = raised_at(error)
        if isinstance(error, SyntaxError):
            place = error.filename or "", error.lineno or 0
        if recorder.updates and not job.held and not any(word in detail for word in DTYPE_WORDS):
            outcome = "updated"  # what it stops by belongs to what comes next
        elif misses_launcher(error):
            outcome = LANGUAGE
    learned = recorder.updates and outcome in ("updated", "finished", "work")
    if learned and not recorder.environments:
        outcome = NO_ENVIRONMENT
    if outcome == NO_ENVIRONMENT:
        recorder.note(f"{OPTIMIZERS}{recorder.optimizers}")
    return Trace(
        outcome,
        detail[:2000],
        *place,
        tuple(recorder.choices.draws),
        recorder.all_steps,
        tuple(recorder.updates),
        recorder.scores.all(),
        tuple(tuple(tensor.shape) for tensor in recorder.parameters.tensors),
        tuple(recorder.notes),
        facts=tuple(recorder.facts),
        known=recorder.known,
        made=tuple(recorder.made),
        slopes=tuple(recorder.slopes),
    )
