"""What somebody's program may not do while it runs here: the kernel holds it, not Python.

`guard_here` says which guard this machine has, `confine` sets it in the process that will run the
program, `forking` lets that process fork, `Workspace` is the folder that it runs in, and `limit`
bounds what it uses.
"""

from eligibility.sandbox.guards import (
    COPY,
    GUARDS,
    LANDLOCK,
    NAMESPACE,
    confine,
    forking,
    guard_here,
    limit,
)
from eligibility.sandbox.workspace import Workspace

__all__ = [
    "COPY", "GUARDS", "LANDLOCK", "NAMESPACE", "Workspace", "confine", "forking", "guard_here",
    "limit",
]  # fmt: skip
