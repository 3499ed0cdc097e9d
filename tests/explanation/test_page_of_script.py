"""The page of a script in a real headless Chromium: live where a leaf is a policy's parameter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from torch.distributions import Categorical

import eligibility as el
from eligibility.explanation.script import explain_script
from tests.explanation.test_page_browser import choose, enter, gradient, numbers, texts


def test_the_page_of_the_forums_script_is_live(browser: Chrome, tmp_path: Path) -> None:
    found = explain_script(Path(__file__).parent / "scripts" / "forum_with_backward.py")
    (tmp_path / "page.html").write_text(found.html(), encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    assert browser.title == "forum_with_backward.py"
    scripted = browser.find_element(By.CSS_SELECTOR, "article > details").get_attribute("outerHTML")
    enter(browser, "own-0", 0.14)
    enter(browser, "own-2", 0.75)
    choose(browser, "drawn", "2")
    weights = torch.tensor([0.14, 0.1, 0.75, 0.01], dtype=torch.float64)
    own = el.eligibility(Categorical(weights), torch.tensor(2))["probs"]
    assert gradient(browser)[:4] == pytest.approx((0.75 * own).tolist(), abs=1e-6)
    assert "π_2 = probs[2] / Σ probs" in texts(browser)["why"]
    line = browser.find_element(By.CSS_SELECTOR, "[data-live=title]").text
    assert line == "∂ prob / ∂ probs of Categorical(probs=[0.14 0.1 0.75 0.01]) at [2]"
    # What the script itself computed stays as it was.
    after = browser.find_element(By.CSS_SELECTOR, "article > details").get_attribute("outerHTML")
    assert after == scripted
    assert browser.title == "forum_with_backward.py"


def test_the_log_probability_inside_a_loss_is_live(browser: Chrome, tmp_path: Path) -> None:
    script = tmp_path / "reinforce.py"
    script.write_text(
        "import torch\n"
        "probs = torch.tensor([0.1, 0.2, 0.7], requires_grad=True)\n"
        "policy = torch.distributions.Categorical(probs)\n"
        "reward = 2.0\n"
        "loss = -policy.log_prob(torch.tensor(1)) * reward\n"
        "loss.backward()\n"
    )
    page = tmp_path / "page.html"
    page.write_text(explain_script(script).html(), encoding="utf-8")
    browser.get(page.as_uri())
    article = browser.find_element(By.TAG_NAME, "article")
    assert "loss is -2 times this log-probability" in article.text
    of_loss = article.find_element(By.CSS_SELECTOR, "section").get_attribute("outerHTML")
    enter(browser, "own-0", 0.5)
    weights = torch.tensor([0.5, 0.2, 0.7], dtype=torch.float64, requires_grad=True)
    (own,) = torch.autograd.grad(Categorical(weights).log_prob(torch.tensor(1)), weights)
    shown = numbers(browser, "[data-root] [data-section=gradient] td.gradient data")
    assert shown[:3] == pytest.approx(own.tolist(), abs=1e-6)
    after = article.find_element(By.CSS_SELECTOR, "section").get_attribute("outerHTML")
    assert after == of_loss
