"""What spaces of actions and observations hold, whatever is done with them: no torch below here.

`kind_of` knows each space that is not made of others by its sizes, its lowest values and its masks;
`parts_of` takes a ``Dict`` or a ``Tuple`` apart. What the audit shows of a space
and the trainer's encodings and policies rest on these.
"""

from importlib.util import find_spec

from eligibility.errors import MissingDependencyError

if find_spec("gymnasium") is None:
    raise MissingDependencyError(
        "the package `gymnasium`",
        "no such package",
        "eligibility with its train extra",
        'pip install "eligibility[train]"',
    )

from eligibility.spaces.counts import Counts, Units
from eligibility.spaces.kinds import (
    ALWAYS,
    FREE,
    NEVER,
    Bits,
    Index,
    Indices,
    Kind,
    Numbers,
    kind_of,
)
from eligibility.spaces.parts import built_of, leaves_of, parts_of, put_together

__all__ = [
    "ALWAYS",
    "FREE",
    "NEVER",
    "Bits",
    "Counts",
    "Index",
    "Indices",
    "Kind",
    "Numbers",
    "Units",
    "built_of",
    "kind_of",
    "leaves_of",
    "parts_of",
    "put_together",
]
