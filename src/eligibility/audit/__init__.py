"""Does this program compute the policy gradient? Run it on a problem whose gradient is known.

``probe`` is that problem, ``choices`` enumerates every random outcome, ``interception`` makes an
unmodified program meet both, ``worker`` runs it in a separate process. ``evidence`` turns the
runs into arrays, ``exact`` into a bias, ``catalogue`` names the rule, ``diagnosis`` writes the
report.
"""

from importlib.util import find_spec

from eligibility.errors import MissingDependencyError

if find_spec("gymnasium") is None:
    raise MissingDependencyError(
        "the audit",
        "no package `gymnasium`",
        "gymnasium, whose environments it stands in for",
        'pip install "eligibility[audit]"',
    )
