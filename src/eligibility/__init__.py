"""REINFORCE you can see through.

The public names, and nothing else. Each is loaded on first use (PEP 562), so that
``import eligibility`` imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# name -> the module that defines it
_PUBLIC = {
    "eligibility": "eligibility.rules.registry",
    "fisher_information": "eligibility.rules.fisher",
    "per_sample_eligibilities": "eligibility.reinforce.weights",
    "register_eligibility": "eligibility.rules.registry",
    "supported_distributions": "eligibility.rules.registry",
    "Explanation": "eligibility.explanation.derivation",
    "explain": "eligibility.explanation.explain",
    "record": "eligibility.explanation.recorder",
    "Bernoulli": "eligibility.distributions",
    "Binomial": "eligibility.distributions",
    "Categorical": "eligibility.distributions",
    "Multinomial": "eligibility.distributions",
    "OneHotCategorical": "eligibility.distributions",
    "CategoricalStatistics": "eligibility.ops.categorical",
    "categorical_entropy": "eligibility.ops.categorical",
    "categorical_kl": "eligibility.ops.categorical",
    "categorical_log_prob": "eligibility.ops.categorical",
    "categorical_statistics": "eligibility.ops.categorical",
    "categorical_sample": "eligibility.ops.sampling",
    "clipped_policy_loss": "eligibility.ops.policy_loss",
    "reinforce_gradient": "eligibility.ops.policy_gradient",
    "reinforce_loss": "eligibility.ops.policy_loss",
    "release_memory": "eligibility.ops.memory",
    "LinearReference": "eligibility.ops.linear_categorical",
    "LinearStatistics": "eligibility.ops.linear_categorical",
    "linear_log_prob": "eligibility.ops.linear_categorical",
    "linear_statistics": "eligibility.ops.linear_categorical",
    "linear_reinforce_loss": "eligibility.ops.linear_policy_loss",
    "linear_clipped_policy_loss": "eligibility.ops.linear_policy_loss",
    "vocab_parallel_linear_statistics": "eligibility.ops.vocab_parallel",
    "vocab_parallel_statistics": "eligibility.ops.vocab_parallel",
    "rewards_to_go": "eligibility.reinforce.returns",
    "generalized_advantages": "eligibility.reinforce.returns",
    "NoBaseline": "eligibility.reinforce.baselines",
    "MovingAverage": "eligibility.reinforce.baselines",
    "LeaveOneOut": "eligibility.reinforce.baselines",
    "TimeDependentLeaveOneOut": "eligibility.reinforce.baselines",
    "StateValue": "eligibility.reinforce.state_value",
    "PerWeight": "eligibility.reinforce.per_weight",
    "Callback": "eligibility.train.callbacks",
    "KeepBest": "eligibility.train.callbacks",
    "Reinforce": "eligibility.train.learner",
    "Counts": "eligibility.spaces.counts",
    "AuditReport": "eligibility.audit.reporting.report",
    "audit_agent": "eligibility.audit.adapters",
    "audit_loss": "eligibility.audit.adapters",
    "audit_module": "eligibility.audit.adapters",
    "audit_script": "eligibility.audit.scripts",
    "audit_token_loss": "eligibility.audit.language.token_loss",
    "TokenBatch": "eligibility.audit.language.token_batch",
}
# names that are modules themselves
_MODULES = {
    "errors": "eligibility.errors",
    "exact": "eligibility.reinforce.exact",
}

__all__ = ["__version__", *_PUBLIC, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'eligibility' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
