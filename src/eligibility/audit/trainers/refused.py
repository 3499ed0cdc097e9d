"""How a run ends, other than by the program's own end."""

from __future__ import annotations

import time
from collections.abc import Callable

from eligibility.audit.trainers.record import Record
from eligibility.audit.user_code import raised_at


class Finished(BaseException):
    """Every group of answers has been trained on."""


class Refused(BaseException):
    """The program needs what the probe cannot stand in for; the message is one sentence."""


def run_to_end(record: Record, program: Callable[[], str]) -> None:
    """Run a program; if it comes to its own end, what it returns says why nothing was measured."""
    started = time.process_time()
    try:
        record.outcome, record.detail = "refused", program()
    except Finished:
        record.outcome = "measured"
    except Refused as refusal:
        record.outcome, record.detail = "refused", str(refusal)
    except BaseException as error:  # whatever the program ends by
        record.outcome, record.detail = "error", f"{type(error).__name__}: {error}"[:2000]
        record.file, record.line = raised_at(error)
    record.seconds = time.process_time() - started
