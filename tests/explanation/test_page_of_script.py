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
from tests.explanation.test_page_browser import choose, enter, gradient, texts


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
