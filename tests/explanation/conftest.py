"""A headless Chromium for the tests of the page. The scripts here are programs, no tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

collect_ignore = ["scripts"]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--window-size=1300,1000",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        missing = "no chromium and chromedriver found (Debian: apt-get install chromium-driver)"
        if os.environ.get("CI"):
            pytest.fail(f"{missing}; in CI the page must be tested")
        pytest.skip(missing)
    options = ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    chrome = Chrome(options, Service(driver))
    yield chrome
    chrome.quit()
