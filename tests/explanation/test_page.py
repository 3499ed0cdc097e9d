"""The page as text: everything of the record is in it, and nothing of the user's is trusted."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.mathtext import MathTextParser
from torch.distributions import Bernoulli, Categorical, Multinomial

import eligibility as el
from eligibility.cli.app import main
from eligibility.errors import UnsupportedDistributionError
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.elements import Source
from eligibility.explanation.formula import Text, formula_of
from eligibility.explanation.latex import latex_of
from eligibility.explanation.operations import _OPERATIONS
from eligibility.explanation.page.markup import Markup, element, join
from eligibility.explanation.page.mathml import math
from eligibility.explanation.page.picture import MOST_BOXES, picture
from eligibility.explanation.patterns import _PATTERNS
from eligibility.explanation.wording import cell
from eligibility.rules.registry import rules_of

FORUM = el.explain(
    Categorical(probs=torch.tensor([0.69, 0.1, 0.2, 0.01])), value=torch.tensor(0), of="prob"
)
BATCH = el.explain(Categorical(probs=torch.ones(2, 3)), value=torch.tensor([0, 1]))
MATHTEXT = MathTextParser("path")  # of LaTeX's mathematics, nearly all that rules use
HOSTILE = "</script><script>alert(1)</script>\" onload='x' &amp; <b>"


class Outline(HTMLParser):
    """The elements of a page; fails on an end tag that does not match."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_page_says_all_that_the_record_says() -> None:
    text = Outline(FORUM.html()).text
    for sentence in (FORUM.title, *FORUM.why):
        assert sentence in text
    for table in (*FORUM.tables, FORUM.rules[0].conventions):
        assert table is not None
        for column in table.columns:
            assert column.title in text
            assert all(cell(value) in text for value in column.values)
    for step in FORUM.steps:
        assert step.name in text
    for check in FORUM.checks:
        assert check.statement in text
    assert FORUM.expected[0].expected in text


@pytest.mark.parametrize("explanation", [FORUM, BATCH], ids=["live", "static"])
def test_page_is_balanced_and_self_contained(explanation: Explanation) -> None:
    page = Outline(explanation.html())
    assert page.open == []
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "base")
        assert not {"src", "href", "srcset", "style"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    assert "http" not in re.sub(r'http-equiv|"http://www.w3.org/2000/svg"', "", explanation.html())


def test_identifiers_are_unique() -> None:
    found = [a["id"] for _, a in Outline(FORUM.html()).elements if "id" in a]
    assert len(found) == len(set(found))


def test_only_one_outcome_of_the_categorical_family_has_controls() -> None:
    counts = torch.tensor([1.0, 1.0, 0.0])
    for live, dist, value in [
        (True, Categorical(logits=torch.zeros(1, 3)), torch.tensor([0])),
        (True, Multinomial(2, probs=torch.ones(3)), counts),
        (False, Categorical(probs=torch.ones(2, 3)), torch.tensor([0, 1])),
        (False, Categorical(probs=torch.ones(13)), torch.tensor(0)),
        (False, Categorical(logits=torch.tensor([0.0, -torch.inf])), torch.tensor(0)),
        (False, Bernoulli(torch.tensor(0.5)), torch.tensor(1.0)),
    ]:
        page = el.explain(dist, value=value).html()
        assert ('id="controls"' in page) is live
        assert ("<script" in page) is live


def hostile() -> Explanation:
    """A record in which every text that a user's program can choose attacks the page."""
    step = replace(
        FORUM.steps[0],
        name=HOSTILE,
        formula=HOSTILE,
        variable=HOSTILE,
        sources=(Source(HOSTILE, 1, HOSTILE, "user"),),
    )
    leaf = replace(FORUM.leaves[0], name=HOSTILE)
    table = replace(FORUM.tables[0], title=HOSTILE, note=HOSTILE, rows=(HOSTILE,) * 4)
    rule = replace(FORUM.rules[0], name=HOSTILE, equation=HOSTILE)
    return replace(
        FORUM,
        title=HOSTILE,
        why=(HOSTILE,),
        tables=(table,),
        steps=(step, *FORUM.steps[1:]),
        leaves=(leaf,),
        rules=(rule,),
        notes=(HOSTILE,),
        expected=(replace(FORUM.expected[0], expected=HOSTILE, answer=HOSTILE),),
        checks=(replace(FORUM.checks[0], statement=HOSTILE, detail=HOSTILE),),
    )


def test_text_of_the_user_is_shown_and_never_executed() -> None:
    page = hostile().html()
    outline = Outline(page)
    assert [tag for tag, _ in outline.elements].count("script") == 2
    assert not any(tag == "b" or "onload" in attributes for tag, attributes in outline.elements)
    assert outline.text.count("alert(1)") >= 14
    assert " ".join(HOSTILE.split()) in outline.text


def test_the_record_in_the_page_is_the_record() -> None:
    for explanation in (FORUM, hostile()):
        page = explanation.html()
        (data,) = re.findall(
            r'<script type="application/json" id="explanation">(.*?)</script>', page
        )
        assert Explanation.from_json(json.dumps(json.loads(data)["record"])) == explanation


def test_notebook_form_has_no_script_and_no_identifiers_to_clash() -> None:
    fragment = FORUM._repr_html_()
    outline = Outline(fragment)
    assert outline.open == []
    assert not [tag for tag, _ in outline.elements if tag in ("script", "html", "body", "form")]
    assert not [a for _, a in outline.elements if "id" in a]
    assert FORUM.why[0] in outline.text
    assert len(fragment) < 40_000


def test_command_line_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "new" / "forum.html"
    arguments = "explain categorical --probs 0.69,0.1,0.2,0.01 --action 0 --of prob --html"
    with pytest.raises(SystemExit) as exit_status:
        main([*arguments.split(), str(page)])
    assert exit_status.value.code == 0
    assert "∂ prob / ∂ probs" in page.read_text(encoding="utf-8")
    assert "0.3100" in capsys.readouterr().out


SCRIPT = """
import torch
probs = torch.tensor([0.69, 0.1, 0.2, 0.01], requires_grad=True)
log_prob = torch.distributions.Categorical(probs=probs).log_prob(torch.tensor(0))
for _ in range(2):
    log_prob.exp().backward(retain_graph=True)
print(log_prob.grad)
"""


def test_page_of_a_script_says_what_is_missing_and_explains_each_pass(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "<script>.py"
    script.write_text(SCRIPT, encoding="utf-8")
    with pytest.raises(SystemExit) as exit_status:
        main(["explain", str(script), "--html", str(tmp_path / "page.html")])
    assert exit_status.value.code == 0
    capfd.readouterr()
    outline = Outline((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert outline.open == []
    assert [tag for tag, _ in outline.elements].count("script") == 2  # the record, and ours
    for said in (
        "The gradients of <script>.py",
        "Why .grad is None log_prob.grad , line 7 it is not a leaf",
        "log_prob.exp().backward(retain_graph=True) line 6, called 2 times; this is the first",
        "stands in the numerator as well",
    ):
        assert said in outline.text


def test_save_chooses_html_by_the_suffix(tmp_path: Path) -> None:
    assert FORUM.save(tmp_path / "x.html").read_text(encoding="utf-8") == FORUM.html()


def chain(length: int) -> Explanation:
    """An unrecorded graph of ``length`` operations, all of them different in kind."""
    leaf = torch.ones(2, requires_grad=True)
    value = leaf
    for index in range(length):
        value = (value.sin, value.cos, value.tanh)[index % 3]()
    return el.explain(value, wrt=leaf)


def test_picture_has_a_box_a_step_and_an_arrow_an_edge() -> None:
    image = ElementTree.fromstring(str(picture(FORUM)))
    boxes = list(image.iter("rect"))
    arrows = list(image.iter("path"))
    edges = sum(len(step.edges) for step in FORUM.steps)
    assert len(boxes) == len(FORUM.steps) + len(FORUM.leaves)
    assert len(arrows) == edges
    assert len([e for e in image.iter() if "edge" in e.get("data-key", "")]) == edges


def test_picture_of_a_known_subgraph_is_unfolded_if_it_is_small() -> None:
    probs = torch.tensor([0.69, 0.1, 0.2, 0.01], requires_grad=True)
    prob = Categorical(probs=probs).log_prob(torch.tensor(0)).exp()
    explanation = el.explain(prob, wrt=probs)
    inner = [step.name for group in explanation.steps for step in group.inner]
    assert len(inner) > 3
    image = "".join(ElementTree.fromstring(str(picture(explanation))).itertext())
    assert all(name in image for name in inner)


def test_picture_of_a_huge_graph_stays_readable_and_its_steps_are_all_listed() -> None:
    huge = chain(1000)
    assert len(huge.steps) < MOST_BOXES
    image = ElementTree.fromstring(str(picture(huge)))
    assert "outside this graph" not in "".join(image.itertext())
    assert len(list(image.iter("path"))) == sum(len(step.edges) for step in huge.steps)
    assert huge.html().count('class="step-name"') > 1000
    wide = replace(huge, steps=tuple(part for step in huge.steps for part in step.inner))
    assert picture(wide) is None


def formulas() -> set[str]:
    """Every formula of a registered rule, of a described operation, and of a known subgraph."""
    found: set[str] = set()
    for cls in el.supported_distributions():
        with contextlib.suppress(UnsupportedDistributionError):  # composed from other rules
            found |= {rule.equation for rule in rules_of(cls)}
    for description in _OPERATIONS.values():
        found |= {description.formula, *description.factors}
    return (found | {pattern[3] for pattern in _PATTERNS}) - {""}


def test_every_formula_is_read_and_drawn() -> None:
    assert len(formulas()) > 120
    for text in formulas():
        assert not isinstance(formula_of(text), Text), text
        drawn = math(text)
        assert drawn.startswith(("<math", "<span")), text
        ElementTree.fromstring(drawn)
        latex = latex_of(text)
        assert "U+" not in latex
        assert latex.isascii(), latex
        MATHTEXT.parse(f"${latex}$")  # raises for what is no formula
    with pytest.raises(ValueError, match="frac"):
        MATHTEXT.parse(r"$\frac{1}$")


@pytest.mark.parametrize(
    ("text", "latex", "drawn"),
    [
        ("y_k/w_k", r"\frac{y_k}{w_k}", "<mfrac><msub><mi>y</mi><mi>k</mi></msub>"),
        (
            "y − n softmax(z)",
            r"y - n\,\mathrm{softmax}(z)",
            '<mo>−</mo><mi>n</mi><mspace width="0.17em"/><mi>softmax</mi>',
        ),
        ("ln p", r"\ln p", '<mi>ln</mi><mspace width="0.17em"/><mi>p</mi>'),
        ("log softmax(x)_a", r"\log\mathrm{softmax}(x)_a", "<mi>log</mi>"),
        ("Σ_j x_j²", r"\sum_jx_j^2", '<munder><mo largeop="true">∑</mo><mi>j</mi></munder>'),
        ("1/Σw − 1", r"\frac{1}{\sum w} - 1", '<mfrac><mn>1</mn><mrow><mo largeop="true">∑'),
        ("½(P⁻¹ − Σ)", r"\frac{1}{2}(P^{-1} - \Sigma)", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        ("(t/λ)^k", r"\left(\frac{t}{\lambda}\right)^k", "<msup><mrow><mo>(</mo><mfrac>"),
        ("(a + b)c/d e", r"\frac{(a + b)c}{d}\,e", "<mfrac>"),
        ("x < 0.5", "x < 0.5", "<mi>x</mi><mo>&lt;</mo><mn>0.5</mn>"),
        ("−½ x^(−3/2)", r"-\frac{1}{2}\,x^{-\frac{3}{2}}", "<msup><mi>x</mi>"),
        ("ψ̃(d₁)", r"\tilde{\psi}(d_1)", "<mo>˜</mo>"),
        ("0 where it was picked", r"0\text{ where it was picked }", "<span>0 where it"),
        ("∂ p/∂W_ij", r"\frac{\partial p}{\partial W_{ij}}", "<msub><mi>W</mi><mrow>"),
    ],
)
def test_a_formula_is_written_in_latex_and_drawn_as_mathml(
    text: str, latex: str, drawn: str
) -> None:
    assert latex_of(text) == latex
    assert drawn in math(text)


@pytest.mark.parametrize(
    "text", ["(x", "x)", "x/", "/x", "x^", "^", "x_", "√", "|x", "[a)", "x_a_b", "{", "a/)"]
)
def test_a_formula_that_does_not_hold_together_is_shown_as_it_is(text: str) -> None:
    assert math(text) == f"<code>{text}</code>"
    assert latex_of(text).startswith(r"\text{")


def test_markup_escapes_all_but_markup() -> None:
    assert (
        element("p", "<a>", Markup("<b/>"), title='"&')
        == '<p title="&quot;&amp;">&lt;a&gt;<b/></p>'
    )
    assert element("input", checked=True, disabled=False, for_=None) == "<input checked/>"
    assert join("a & b", None, Markup("&amp;")) == "a &amp; b&amp;"
