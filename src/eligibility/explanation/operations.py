"""What each autograd node computes: name, formula and local derivative.

``x`` is the first input, ``y`` the second, ``f`` the forward value. An operation that is not listed
is shown raw, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from eligibility.explanation.recorder import base_name


@dataclass(frozen=True)
class Description:
    """An operation in words, as a formula, and its local derivative for each input."""

    name: str  # a noun that fits into "through the …"
    formula: str
    # The local derivative for each input: what the incoming gradient is multiplied by.
    factors: tuple[str, ...]
    elementwise: bool = False  # whether the factors multiply the gradient entry by entry


def describe(node_name: str) -> Description | None:
    """The description of an autograd node, or None if it is not listed."""
    return _OPERATIONS.get(base_name(node_name))


def _each(name: str, formula: str, *factors: str) -> Description:
    return Description(name, formula, factors, elementwise=True)


def _whole(name: str, formula: str, *factors: str) -> Description:
    return Description(name, formula, factors)


def _moved(name: str, formula: str) -> Description:
    """Numbers in other places, their gradients unchanged."""
    return Description(name, formula, ("",))


_COPY = "1, copied to every entry"
_PICK = "1 where it was picked, 0 elsewhere"

_OPERATIONS: dict[str, Description] = {
    "exp": _each("exponential", "exp(x)", "exp(x)"),
    "log": _each("logarithm", "log(x)", "1/x"),
    "log1p": _each("logarithm", "log(1 + x)", "1/(1 + x)"),
    "neg": _each("sign change", "−x", "−1"),
    "abs": _each("absolute value", "|x|", "sign(x)"),
    "sqrt": _each("square root", "√x", "1/(2√x)"),
    "rsqrt": _each("inverse root", "1/√x", "−½ x^(−3/2)"),
    "reciprocal": _each("reciprocal", "1/x", "−1/x²"),
    "sin": _each("sine", "sin(x)", "cos(x)"),
    "cos": _each("cosine", "cos(x)", "−sin(x)"),
    "tanh": _each("tanh", "tanh(x)", "1 − f²"),
    "sigmoid": _each("logistic function", "σ(x)", "f (1 − f)"),
    "logsigmoid": _each("log-logistic", "log σ(x)", "σ(−x)"),
    "softplus": _each("softplus", "log(1 + eˣ)", "σ(x)"),
    "relu": _each("ReLU", "max(x, 0)", "1 if x > 0 else 0"),
    "lgamma": _each("log-gamma", "ln Γ(x)", "ψ(x)"),
    "binarycrossentropywithlogits": _each(
        "binary cross-entropy", "log(1 + eˣ) − y x", "(σ(x) − y)"
    ),
    "clamp": _each("clamp", "x held between its bounds", "1 inside the bounds, 0 outside"),
    "pow": _each("power", "x^y", "y x^(y − 1)", "f log(x)"),
    "add": _each("addition", "x + y", "1", "1"),
    "sub": _each("subtraction", "x − y", "1", "−1"),
    "rsub": _each("subtraction", "y − x", "−1", "1"),
    "minimum": _each("minimum", "min(x, y)", "1 where x is less", "1 where y is less"),
    "maximum": _each("maximum", "max(x, y)", "1 where x is greater", "1 where y is greater"),
    "mul": _each("multiplication", "x · y", "y", "x"),
    "div": _each("division", "x / y", "1/y", "−x/y²"),
    "xlogy": _each("x·log(y)", "x log(y)", "log(y)", "x/y"),
    "logaddexp": _each("log-add-exp", "log(eˣ + eʸ)", "exp(x − f)", "exp(y − f)"),
    "sum": _whole("sum", "Σ x", _COPY),
    "mean": _whole("mean", "Σ x / N", "1/N, copied"),
    "gather": _whole("selection", "x[a]", _PICK),
    "index": _whole("selection", "x[a]", _PICK),
    "select": _whole("selection", "x[i]", _PICK),
    "slice": _whole("slice", "x[i:j]", _PICK),
    "logsumexp": _whole("log-sum-exp", "log Σ exp(x)", "softmax(x)"),
    "logsoftmax": _whole("log-softmax", "x − log Σ exp(x)", "g − softmax(x) Σg"),
    "softmax": _whole("softmax", "exp(x) / Σ exp(x)", "f (g − Σ f g)"),
    "nllloss": _whole("negative selection", "−x[a]", "−1 where picked"),
    "mm": _whole("matrix product", "x y", "g yᵀ", "xᵀ g"),
    "addmm": _whole("linear layer", "b + x Wᵀ", "1, summed over the batch", "g W", "gᵀ x"),
    "expand": _whole("expansion", "x, repeated", "1, summed over the copies"),
    "where": _whole("choice", "x if c else y", "1 where c holds", "1 where c does not"),
    "clone": _each("copy", "x", "1"),
    "tocopy": _whole("conversion", "x, converted", "1"),
    "squeeze": _moved("squeeze", "x, an axis of 1 dropped"),
    "unsqueeze": _moved("unsqueeze", "x, an axis of 1 added"),
    "view": _moved("view", "x, reshaped"),
    "reshapealias": _moved("view", "x, reshaped"),
    "unsafeview": _moved("view", "x, reshaped"),
    "transpose": _moved("transpose", "xᵀ"),
    "t": _moved("transpose", "xᵀ"),
    "permute": _moved("permutation", "x, axes permuted"),
    "alias": _moved("alias", "x"),
}
