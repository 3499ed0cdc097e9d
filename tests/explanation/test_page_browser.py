"""The page in a real headless Chromium: it renders, and its controls give the library's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from torch import Tensor
from torch.distributions import Binomial, Categorical, Distribution, Multinomial, OneHotCategorical

import eligibility as el
from eligibility.explanation import wording
from eligibility.explanation.by_rule import explain_problem
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.problem import make_problem

PROBS = torch.tensor([0.69, 0.1, 0.2, 0.01], dtype=torch.float64)
COUNTS = torch.tensor([2, 0, 1, 1], dtype=torch.float64)
FORUM = el.explain(Categorical(probs=PROBS), value=torch.tensor(0), of="prob")


def reinforce_loss() -> Explanation:
    """A whole loss, with known subgraphs in it."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    with el.record():
        policy = Categorical(logits=network(torch.randn(5, 3)))
        score = policy.log_prob(torch.tensor([0, 1, 2, 3, 0]))
        loss = -(torch.randn(5) * score).mean() - 0.01 * policy.entropy().mean()
    return el.explain(loss)


def long_graph() -> Explanation:
    """A thousand operations, three hundred of which use one leaf."""
    weight = torch.linspace(-1, 1, 6, requires_grad=True)
    value = weight
    for _ in range(333):
        value = torch.sin(value) * 1.01 + weight
    return el.explain(value.sum(), wrt=weight)


def forum_by_graph() -> Explanation:
    probs = PROBS[None].float().requires_grad_()
    with el.record():
        prob = Categorical(probs=probs).log_prob(torch.tensor([0])).exp()
    return el.explain(prob, wrt=probs)


# One entry a kind of page: with controls, without, and by graph.
PAGES: dict[str, Explanation] = {
    "forum": FORUM,
    "logits": el.explain(Categorical(logits=PROBS.log()), value=torch.tensor(3)),
    "multinomial": el.explain(Multinomial(4, probs=PROBS), value=COUNTS),
    "batch": el.explain(Categorical(probs=torch.ones(2, 3)), value=torch.tensor([0, 1])),
    "binomial": el.explain(Binomial(5, torch.tensor(0.3)), value=torch.tensor(2.0)),
    "twelve": el.explain(Categorical(logits=torch.arange(12.0)), value=torch.tensor(4)),
    "forum by graph": forum_by_graph(),
    "loss": reinforce_loss(),
    "long": long_graph(),
}
SECTIONS = ("gradient", "why", "steps", "rule", "expected")


@pytest.fixture(autouse=True)
def _as_installed(browser: Chrome) -> Iterator[None]:
    """Each test leaves the browser as it found it, and no message on its console."""
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert browser.get_log("browser") == []


def show(browser: Chrome, explanation: Explanation, folder: Path) -> None:
    browser.get(explanation.save(folder / "page.html").as_uri())


def field(browser: Chrome, name: str) -> WebElement:
    return browser.find_element(By.NAME, name)


def choose(browser: Chrome, name: str, value: str) -> None:
    browser.find_element(By.CSS_SELECTOR, f"input[name={name}][value='{value}']").click()


def enter(browser: Chrome, name: str, value: float) -> None:
    control = field(browser, name)
    control.clear()
    control.send_keys(repr(value))


def texts(browser: Chrome) -> dict[str, str]:
    """What each section says, as a screen reader would read it."""
    script = """
        const said = (id) => {
          const section = document.querySelector(`[data-section=${id}]`);
          return section === null || section.hidden ? "" : section.textContent;
        };
        return Object.fromEntries(arguments[0].map((id) => [id, said(id)]));
    """
    said: dict[str, str] = browser.execute_script(script, SECTIONS)
    return {"title": browser.title, "h1": browser.find_element(By.TAG_NAME, "h1").text, **said}


def numbers(browser: Chrome, selector: str = "data") -> list[float]:
    """Every number of the tables, or of some of their cells, unrounded."""
    script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.value)"
    return list(map(float, browser.execute_script(script, selector)))


def gradient(browser: Chrome) -> list[float]:
    return numbers(browser, "[data-section=gradient] td.gradient data")


def bars(browser: Chrome) -> list[list[str]]:
    script = """
        return [...document.querySelectorAll('.bar rect')].map((bar) =>
          ['class', 'x', 'width'].map((name) => bar.getAttribute(name)))
    """
    found: list[list[str]] = browser.execute_script(script)
    return found


def assert_same_page(browser: Chrome, explanation: Explanation, folder: Path) -> None:
    """What the controls have made of the page is what the library renders for those numbers."""
    moved = texts(browser), numbers(browser), bars(browser)
    show(browser, explanation, folder)
    assert moved[0] == texts(browser)
    assert moved[1] == pytest.approx(numbers(browser), rel=1e-9, abs=1e-12)
    assert [bar[0] for bar in moved[2]] == [bar[0] for bar in bars(browser)]


@pytest.mark.parametrize("name", PAGES)
def test_page_renders_and_asks_for_nothing(name: str, browser: Chrome, tmp_path: Path) -> None:
    show(browser, PAGES[name], tmp_path)
    assert browser.title == PAGES[name].title
    assert "The gradient" in browser.find_element(By.TAG_NAME, "main").text
    assert browser.execute_script("return performance.getEntriesByType('resource')") == []
    for equation in browser.find_elements(By.CSS_SELECTOR, ".equation math"):
        assert equation.size["height"] > 15


@pytest.mark.parametrize("coordinates", ["weights", "ambient", "free", "tangent"])
def test_probability_and_convention_give_what_the_library_gives(
    coordinates: str, browser: Chrome, tmp_path: Path
) -> None:
    show(browser, FORUM, tmp_path)
    enter(browser, "own-0", 0.14)
    enter(browser, "own-2", 0.75)
    choose(browser, "drawn", "2")
    choose(browser, "coordinates", coordinates)
    policy = Categorical(torch.tensor([0.14, 0.1, 0.75, 0.01], dtype=torch.float64))
    own = el.eligibility(policy, torch.tensor(2), coordinates=coordinates)["probs"]
    assert gradient(browser) == pytest.approx((0.75 * own).tolist(), abs=1e-6)


@pytest.mark.parametrize("coordinates", ["weights", "ambient", "free", "tangent"])
def test_page_follows_weights_that_do_not_sum_to_one(
    coordinates: str, browser: Chrome, tmp_path: Path
) -> None:
    show(browser, FORUM, tmp_path)
    enter(browser, "own-2", 0.55)
    choose(browser, "drawn", "2")
    choose(browser, "coordinates", coordinates)
    weights = torch.tensor([0.69, 0.1, 0.55, 0.01], dtype=torch.float64)
    problem = make_problem(Categorical, {"probs": weights}, {}, torch.tensor(2))
    moved = explain_problem(problem, coordinates=coordinates, of="prob")
    assert_same_page(browser, moved, tmp_path)


def test_page_follows_to_where_torch_is_wrong(browser: Chrome, tmp_path: Path) -> None:
    """An impossible outcome: the eligibility is infinite, and torch's clamp makes it vanish."""
    given = el.explain(Categorical(probs=PROBS), value=torch.tensor(0))
    show(browser, given, tmp_path)
    enter(browser, "own-0", 0.0)
    weights = torch.tensor([0.0, 0.1, 0.2, 0.01], dtype=torch.float64)
    problem = make_problem(Categorical, {"probs": weights}, {}, torch.tensor(0))
    assert gradient(browser) == [0.0] * 4
    exact = numbers(browser, "[data-section=gradient] td.convention data")
    assert exact == pytest.approx([math.inf, *[-1 / 0.31] * 3])
    assert browser.find_element(By.CSS_SELECTOR, ".checks li").get_attribute("class") == "fails"
    assert_same_page(browser, explain_problem(problem), tmp_path)


def test_page_shows_what_torch_gives_where_its_summands_vanish(
    browser: Chrome, tmp_path: Path
) -> None:
    """A certain outcome: torch clamps its probability, and the parts 0 + 0 add up to 0."""
    show(browser, FORUM, tmp_path)
    for k, weight in ((0, 0.0), (1, 0.0), (3, 0.0)):
        choose(browser, "drawn", "2")
        enter(browser, f"own-{k}", weight)
    weights = torch.tensor([0.0, 0.0, 0.2, 0.0], dtype=torch.float64)
    moved = explain_problem(
        make_problem(Categorical, {"probs": weights}, {}, torch.tensor(2)), of="prob"
    )
    assert gradient(browser) == [0.0] * 4
    assert numbers(browser, "[data-section=gradient] td.convention data") == [-5, -5, 0, -5]
    assert_same_page(browser, moved, tmp_path)


@pytest.mark.parametrize(
    ("family", "first", "second"),
    [
        (Categorical, torch.tensor(3), torch.tensor(1)),
        (OneHotCategorical, torch.eye(4)[3], torch.eye(4)[1]),
    ],
)
def test_logit_and_action_give_what_the_library_gives(
    family: type[Distribution], first: Tensor, second: Tensor, browser: Chrome, tmp_path: Path
) -> None:
    logits = torch.tensor([0.5, -1.25, 2.0, 0.0], dtype=torch.float64)
    given = explain_problem(make_problem(family, {"logits": logits}, {}, first))
    show(browser, given, tmp_path)
    enter(browser, "own-0", -3.5)
    choose(browser, "drawn", "1")
    logits[0] = -3.5
    wanted = el.eligibility(family(logits=logits), second)["logits"]
    assert gradient(browser) == pytest.approx(wanted.tolist(), abs=1e-6)
    moved = explain_problem(make_problem(family, {"logits": logits}, {}, second))
    assert_same_page(browser, moved, tmp_path)


def test_count_gives_what_the_library_gives(browser: Chrome, tmp_path: Path) -> None:
    show(browser, PAGES["multinomial"], tmp_path)
    enter(browser, "count-1", 3)
    moved = torch.tensor([2, 3, 1, 1], dtype=torch.float64)
    dist = Multinomial(7, probs=PROBS)
    wanted = el.eligibility(dist, moved)["probs"]
    assert gradient(browser) == pytest.approx(wanted.tolist(), abs=1e-6)
    assert_same_page(browser, el.explain(dist, value=moved), tmp_path)


def test_other_column_moves_the_parameter(browser: Chrome, tmp_path: Path) -> None:
    """The probability of a logit, and the logarithm of a weight."""
    show(browser, PAGES["logits"], tmp_path)
    enter(browser, "other-3", 0.5)
    expected = [-0.345 / 0.99, -0.05 / 0.99, -0.1 / 0.99, 0.5]
    assert gradient(browser) == pytest.approx(expected, abs=1e-6)
    show(browser, FORUM, tmp_path)
    enter(browser, "other-1", -1.0)
    total = 0.9 + 0.36787944117144233
    assert gradient(browser)[1] == pytest.approx(-0.69 / total**2, abs=1e-6)


def test_slider_moves_by_keyboard_and_everything_follows(browser: Chrome, tmp_path: Path) -> None:
    show(browser, FORUM, tmp_path)
    before = texts(browser)
    field(browser, "slider-0").send_keys(Keys.ARROW_LEFT)
    after = texts(browser)
    assert all(before[part] != after[part] for part in ("title", *SECTIONS))
    weights = PROBS.clone()
    weights[0] = float(field(browser, "slider-0").get_attribute("value") or "nan")
    problem = make_problem(Categorical, {"probs": weights}, {}, torch.tensor(0))
    moved = explain_problem(problem, of="prob")
    assert weights[0] < 0.69
    assert gradient(browser) == pytest.approx(moved.rules[0].result.values, abs=1e-6)


def test_script_writes_numbers_as_the_library_does(browser: Chrome) -> None:
    generator = torch.Generator().manual_seed(0)
    exponents = torch.linspace(-12, 12, 400, dtype=torch.float64)
    digits = torch.rand(400, generator=generator, dtype=torch.float64) - 0.5
    values = [0.0, -0.0, 1.0, -1e-3, 99999.96, 9.99996e-5, 0.99996, 1e-4, 1e5, 1e22, 2.5e-310]
    values += (digits * 10**exponents).tolist()
    script = (files("eligibility.explanation.page") / "assets" / "numbers.js").read_text("utf-8")
    written = browser.execute_script(
        f"{script}; return [arguments[0].map(number), arguments[0].map(cell)]", values
    )
    assert written == [list(map(wording.number, values)), list(map(wording.cell, values))]
    extremes = browser.execute_script(f"{script}; return [NaN, 1 / 0, -1 / 0].map(number)")
    assert extremes == list(map(wording.number, [math.nan, math.inf, -math.inf]))


def test_checks_are_computed_again(browser: Chrome, tmp_path: Path) -> None:
    show(browser, FORUM, tmp_path)
    enter(browser, "own-0", 0.3)
    items = browser.find_elements(By.CSS_SELECTOR, ".checks li")
    assert [item.get_attribute("class") for item in items] == ["passes"] * 4
    statements = [item.find_element(By.CLASS_NAME, "statement").text for item in items]
    assert statements[0] == "rule = the steps above, walked backwards"
    assert statements[1:] == [check.statement for check in FORUM.checks[1:]]


def test_reset_puts_the_page_back(browser: Chrome, tmp_path: Path) -> None:
    show(browser, FORUM, tmp_path)
    before = texts(browser)
    enter(browser, "own-0", 0.3)
    choose(browser, "drawn", "3")
    choose(browser, "coordinates", "free")
    assert texts(browser) != before
    browser.find_element(By.CSS_SELECTOR, "#controls button").click()
    assert texts(browser) == before
    assert field(browser, "own-0").get_attribute("value") == "0.69"


@pytest.mark.parametrize(
    ("name", "keys", "problem"),
    [
        ("own-1", "-1", "A weight cannot be negative."),
        ("own-1", "", "Every entry must be a finite number."),
        ("own-0", "0", "The gradient of prob needs an outcome that can happen."),
    ],
)
def test_bad_number_is_explained_and_changes_nothing(
    name: str, keys: str, problem: str, browser: Chrome, tmp_path: Path
) -> None:
    show(browser, FORUM, tmp_path)
    before = gradient(browser)
    control = field(browser, name)
    control.send_keys(Keys.CONTROL, "a")
    control.send_keys(Keys.BACKSPACE)
    control.send_keys(keys)
    assert browser.find_element(By.ID, "problem").text == problem
    assert control.get_attribute("aria-invalid") == "true"
    assert gradient(browser) == before


@pytest.mark.parametrize("name", PAGES)
def test_phone_needs_no_horizontal_scroll(name: str, browser: Chrome, tmp_path: Path) -> None:
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    show(browser, PAGES[name], tmp_path)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(scheme: str, browser: Chrome, tmp_path: Path) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    show(browser, FORUM, tmp_path)
    script = """
        const page = getComputedStyle(document.body);
        const kinds = ['p', 'th', '.aside', '.note', '.drawn', 'td data', 'code', 'summary', 'dt'];
        const colours = kinds.map((k) => getComputedStyle(document.querySelector(k)).color);
        return [page.backgroundColor, page.color, ...colours];
    """
    paper, *inks = map(luminance, browser.execute_script(script))
    assert paper < 0.05 if scheme == "dark" else paper > 0.9
    for ink in inks:
        light, dark = max(ink, paper), min(ink, paper)
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2.2, success criterion 1.4.3


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(r, g, b)``, as WCAG defines it."""
    channels = [int(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_page_is_read_without_a_script(browser: Chrome, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    show(browser, FORUM, tmp_path)
    text = browser.find_element(By.TAG_NAME, "main").text
    assert "-0.6900" in text
    assert "stands in the numerator as well" in text
    assert not browser.find_element(By.ID, "controls").is_displayed()


@pytest.mark.parametrize("name", ["forum", "multinomial"])
def test_every_control_has_a_name_and_tables_have_headers(
    name: str, browser: Chrome, tmp_path: Path
) -> None:
    show(browser, PAGES[name], tmp_path)
    controls = browser.find_elements(By.CSS_SELECTOR, "input, button")
    names = [control.accessible_name for control in controls]
    assert all(names)
    assert "weight of category 0" in names
    for cell in browser.find_elements(By.CSS_SELECTOR, "thead th, tbody th"):
        assert cell.get_attribute("scope") in ("col", "row")
        assert cell.aria_role in ("columnheader", "rowheader")
    assert browser.find_element(By.CSS_SELECTOR, "[data-section=why] [aria-live=polite]").text
    # Everything that can be changed is reached by the tabulator, in the order of the page.
    assert not browser.find_elements(By.CSS_SELECTOR, "[tabindex]")


def test_policy_of_the_page_stops_foreign_scripts(browser: Chrome, tmp_path: Path) -> None:
    page = FORUM.html().replace("</body>", "<script>document.title = 'taken over'</script></body>")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    assert browser.title == FORUM.title
    (refused,) = browser.get_log("browser")
    assert "Content Security Policy" in refused["message"]
