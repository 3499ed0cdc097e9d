"""What each autograd node computes: name, formula and local derivative, in words and in LaTeX.

``x`` is the first input, ``y`` the second, ``f`` the forward value. An operation that is not listed
is shown raw, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from eligibility.explanation.recorder import base_name


@dataclass(frozen=True)
class Factor:
    """The local derivative for one input: what the incoming gradient is multiplied by."""

    text: str
    latex: str


@dataclass(frozen=True)
class Description:
    """An operation in words, as a formula, and its local derivative for each input.

    Attributes:
        name: A noun that fits into "through the …".
        formula: The forward formula.
        latex: The same in LaTeX.
        factors: One for each input.
        elementwise: Whether the factors multiply the gradient entry by entry.
    """

    name: str
    formula: str
    latex: str
    factors: tuple[Factor, ...]
    elementwise: bool = False


def describe(node_name: str) -> Description | None:
    """The description of an autograd node, or None if it is not listed."""
    return _OPERATIONS.get(base_name(node_name))


def _unary(name: str, formula: str, latex: str, factor: str, factor_latex: str) -> Description:
    return Description(name, formula, latex, (Factor(factor, factor_latex),), elementwise=True)


_SAME = Factor("", r"1")
_COPY = Factor("1, copied to every entry", r"1")
_PICK = Factor("1 where it was picked, 0 elsewhere", r"[k=i]")


def _reshaping(name: str, formula: str) -> Description:
    return Description(name, formula, rf"\operatorname{{{name}}}(x)", (_SAME,))


_OPERATIONS: dict[str, Description] = {
    "exp": _unary("exponential", "exp(x)", r"e^{x}", "exp(x)", r"e^{x}"),
    "log": _unary("logarithm", "log(x)", r"\ln x", "1/x", r"1/x"),
    "log1p": _unary("logarithm", "log(1 + x)", r"\ln(1+x)", "1/(1 + x)", r"1/(1+x)"),
    "neg": _unary("sign change", "−x", r"-x", "−1", r"-1"),
    "abs": _unary("absolute value", "|x|", r"|x|", "sign(x)", r"\operatorname{sign}x"),
    "sqrt": _unary("square root", "√x", r"\sqrt{x}", "1/(2√x)", r"1/(2\sqrt{x})"),
    "rsqrt": _unary("inverse root", "1/√x", r"1/\sqrt{x}", "−½ x^(−3/2)", r"-\tfrac12 x^{-3/2}"),
    "reciprocal": _unary("reciprocal", "1/x", r"1/x", "−1/x²", r"-1/x^2"),
    "sin": _unary("sine", "sin(x)", r"\sin x", "cos(x)", r"\cos x"),
    "cos": _unary("cosine", "cos(x)", r"\cos x", "−sin(x)", r"-\sin x"),
    "tanh": _unary("tanh", "tanh(x)", r"\tanh x", "1 − f²", r"1-f^2"),
    "sigmoid": _unary("logistic function", "σ(x)", r"\sigma(x)", "f (1 − f)", r"f(1-f)"),
    "logsigmoid": _unary("log-logistic", "log σ(x)", r"\ln\sigma(x)", "σ(−x)", r"\sigma(-x)"),
    "softplus": _unary("softplus", "log(1 + eˣ)", r"\ln(1+e^x)", "σ(x)", r"\sigma(x)"),
    "relu": _unary("ReLU", "max(x, 0)", r"\max(x,0)", "1 if x > 0 else 0", r"[x>0]"),
    "lgamma": _unary("log-gamma", "ln Γ(x)", r"\ln\Gamma(x)", "ψ(x)", r"\psi(x)"),
    "binarycrossentropywithlogits": _unary(
        "binary cross-entropy", "log(1 + eˣ) − y x", r"\ln(1+e^x)-yx",
        "(σ(x) − y)", r"(\sigma(x)-y)",
    ),
    "clamp": _unary(
        "clamp", "x held between its bounds", r"\operatorname{clamp}(x)",
        "1 inside the bounds, 0 outside", r"[\text{inside}]",
    ),
    "pow": Description(
        "power", "x^y", r"x^{y}",
        (Factor("y x^(y − 1)", r"y\,x^{y-1}"), Factor("f log(x)", r"f\ln x")), True,
    ),
    "add": Description("addition", "x + y", r"x+y", (Factor("1", "1"), Factor("1", "1")), True),
    "sub": Description(
        "subtraction", "x − y", r"x-y", (Factor("1", "1"), Factor("−1", "-1")), True
    ),
    "rsub": Description(
        "subtraction", "y − x", r"y-x", (Factor("−1", "-1"), Factor("1", "1")), True
    ),
    "minimum": Description(
        "minimum", "min(x, y)", r"\min(x,y)",
        (Factor("1 where x is less", "[x<y]"), Factor("1 where y is less", "[y<x]")), True,
    ),
    "maximum": Description(
        "maximum", "max(x, y)", r"\max(x,y)",
        (Factor("1 where x is greater", "[x>y]"), Factor("1 where y is greater", "[y>x]")), True,
    ),
    "mul": Description(
        "multiplication", "x · y", r"x\cdot y", (Factor("y", "y"), Factor("x", "x")), True
    ),
    "div": Description(
        "division", "x / y", r"x/y", (Factor("1/y", "1/y"), Factor("−x/y²", "-x/y^2")), True
    ),
    "xlogy": Description(
        "x·log(y)", "x log(y)", r"x\ln y", (Factor("log(y)", r"\ln y"), Factor("x/y", "x/y")), True
    ),
    "logaddexp": Description(
        "log-add-exp", "log(eˣ + eʸ)", r"\ln(e^x+e^y)",
        (Factor("exp(x − f)", r"e^{x-f}"), Factor("exp(y − f)", r"e^{y-f}")), True,
    ),
    "sum": Description("sum", "Σ x", r"\sum x", (_COPY,)),
    "mean": Description("mean", "Σ x / N", r"\tfrac1N\sum x", (Factor("1/N, copied", "1/N"),)),
    "gather": Description("selection", "x[a]", r"x_a", (_PICK,)),
    "index": Description("selection", "x[a]", r"x_a", (_PICK,)),
    "select": Description("selection", "x[i]", r"x_i", (_PICK,)),
    "slice": Description("slice", "x[i:j]", r"x_{i:j}", (_PICK,)),
    "logsumexp": Description(
        "log-sum-exp", "log Σ exp(x)", r"\ln\sum e^{x}",
        (Factor("softmax(x)", r"\operatorname{softmax}(x)"),),
    ),
    "logsoftmax": Description(
        "log-softmax", "x − log Σ exp(x)", r"x-\ln\sum e^{x}",
        (Factor("g − softmax(x) Σg", r"g-\operatorname{softmax}(x)\textstyle\sum g"),),
    ),
    "softmax": Description(
        "softmax", "exp(x) / Σ exp(x)", r"e^{x}/\sum e^{x}",
        (Factor("f (g − Σ f g)", r"f(g-\sum fg)"),),
    ),
    "nllloss": Description(
        "negative selection", "−x[a]", r"-x_a", (Factor("−1 where picked", "-[k=a]"),)
    ),
    "mm": Description(
        "matrix product", "x y", r"xy", (Factor("g yᵀ", r"g\,y^\top"), Factor("xᵀ g", r"x^\top g"))
    ),
    "addmm": Description(
        "linear layer", "b + x Wᵀ", r"b+xW^\top",
        (Factor("1, summed over the batch", r"\textstyle\sum g"), Factor("g W", r"g\,W"),
         Factor("gᵀ x", r"g^\top x")),
    ),
    "expand": Description(
        "expansion", "x, repeated", r"x\,\text{repeated}",
        (Factor("1, summed over the copies", r"\textstyle\sum g"),),
    ),
    "where": Description(
        "choice", "x if c else y", r"x\text{ if }c\text{ else }y",
        (Factor("1 where c holds", "[c]"), Factor("1 where c does not", r"[\lnot c]")),
    ),
    "clone": Description("copy", "x", "x", (Factor("1", "1"),), True),
    "tocopy": Description("conversion", "x, converted", "x", (Factor("1", "1"),)),
    "squeeze": _reshaping("squeeze", "x, an axis of 1 dropped"),
    "unsqueeze": _reshaping("unsqueeze", "x, an axis of 1 added"),
    "view": _reshaping("view", "x, reshaped"),
    "reshapealias": _reshaping("view", "x, reshaped"),
    "unsafeview": _reshaping("view", "x, reshaped"),
    "transpose": _reshaping("transpose", "xᵀ"),
    "t": _reshaping("transpose", "xᵀ"),
    "permute": _reshaping("permutation", "x, axes permuted"),
    "alias": _reshaping("alias", "x"),
}  # fmt: skip
