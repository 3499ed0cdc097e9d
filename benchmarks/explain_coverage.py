"""Which operators the recorder sees: forward values and edge sums over PyTorch's own operator list.

    pip install expecttest  # torch.testing needs it
    python benchmarks/explain_coverage.py

For the first sample input of each differentiable operator in float64: how many autograd nodes have
a recorded forward value, whether the edges at the leaves add up to autograd's gradient, and which
operators cannot be explained, with the reason. Prints JSON.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

import eligibility as el
from eligibility.explanation.graph import graph_between


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    nodes = seen = operators = 0
    unseen: Counter[str] = Counter()
    failing, refused = [], {}
    for operator in op_db:
        if not operator.supports_autograd or not operator.supports_dtype(torch.float64, "cpu"):
            continue
        try:
            output, recording = run(operator)
        except Exception as error:  # an operator that this machine cannot run at all
            refused[operator.formatted_name] = f"{type(error).__name__}: {str(error)[:80]}"
            continue
        if output is None:
            continue
        operators += 1
        for node in graph_between(output.grad_fn).nodes:
            nodes += 1
            found = recording.find(node) is not None
            seen += found
            unseen[node.name()] += not found
        try:
            explanation = el.explain(output)
            if not all(check.passed for check in explanation.checks):
                failing.append(operator.formatted_name)
        except Exception as error:  # what fails here is a figure of this benchmark
            refused[operator.formatted_name] = f"{type(error).__name__}: {str(error)[:80]}"
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "operators": operators,
                "nodes": nodes,
                "nodes_with_a_forward_value": seen,
                "unseen_nodes": {name: count for name, count in unseen.most_common() if count},
                "operators_whose_edges_do_not_add_up": failing,
                "operators_refused": refused,
            },
            indent=1,
        )
    )


def run(operator: Any) -> tuple[torch.Tensor | None, Any]:
    """The first differentiable result of the operator's first sample, recorded."""
    for sample in operator.sample_inputs("cpu", torch.float64, requires_grad=True):
        with el.record() as recording:
            result = operator(sample.input, *sample.args, **sample.kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                return tensor, recording
        return None, recording
    return None, None


if __name__ == "__main__":
    main()
