"""What the first run imports is there in the next one, but for what took the interception along."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

import eligibility as el
from eligibility.audit.interception.threads import run_threads_here
from eligibility.audit.running.preloading import installed
from tests.audit.writing import PROGRAM


def test_packages_that_hold_something_of_the_interception_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def module(name: str, **values: object) -> ModuleType:
        made = ModuleType(name)
        made.__file__ = f"/usr/lib/site-packages/{name.replace('.', '/')}.py"
        vars(made).update(values)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    ours = el.audit_script  # which loads what it needs
    before = set(sys.modules)
    module("plain")
    module("plain.part", number=3)
    module("players", make=ours)  # a function of ours, as if it stood for gym's
    user = module("users")
    user.play = sys.modules["players"]  # type: ignore[attr-defined]
    old = module("old")
    old.gym = ModuleType("gym.envs")  # type: ignore[attr-defined]
    # loaded late, as by accelerate: what torch has loaded before has torch's own function as well
    module("torch._late", load=ours)
    module("tables", Lock=run_threads_here)  # as pandas and scipy keep threading's
    assert installed(before) == ["plain", "plain.part", "torch._late", "tables"]


def test_a_program_writes_where_its_own_modules_lie_and_only_in_the_copy(tmp_path: Path) -> None:
    """The environment is made by keyword, and the module lies above the program's folder."""
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "places.py").write_text(
        "from pathlib import Path\nLOGS = Path(__file__).parent / 'logs'\n", encoding="utf-8"
    )
    (tmp_path / "agents").mkdir()
    path = tmp_path / "agents" / "program.py"
    made = PROGRAM.replace("gym.make(", "gym.make(id=")
    path.write_text(f"from places import LOGS\nLOGS.mkdir()\n{made}", encoding="utf-8")
    assert el.audit_script(path).verdict == "unbiased"
    assert not (tmp_path / "logs").exists()


def test_a_program_writes_where_it_lies_itself_and_only_in_the_copy(tmp_path: Path) -> None:
    folder = "os.path.join(os.path.dirname(os.path.abspath(__file__)), 'checkpoints')"
    path = tmp_path / "program.py"
    path.write_text(f"import os\nos.makedirs({folder})\n{PROGRAM}", encoding="utf-8")
    report = el.audit_script(path)
    assert report.verdict == "unbiased", report.text()
    assert not (tmp_path / "checkpoints").exists()


def test_a_program_without_a_repository_finds_modules_two_folders_above_itself(
    tmp_path: Path,
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "places.py").write_text("GAMMA = 0.9\n", encoding="utf-8")
    path = tmp_path / "experiments" / "cartpole" / "program.py"
    path.parent.mkdir(parents=True)
    above = "os.path.join(os.path.dirname(__file__), '../..')"
    imports = f"import os, sys\nsys.path.append({above})\nfrom source.places import GAMMA\n"
    path.write_text(imports + PROGRAM.replace("GAMMA = 0.9\n", ""), encoding="utf-8")
    assert el.audit_script(path).verdict == "unbiased"


def test_a_module_above_a_program_without_a_repository_is_found_and_its_interface_read(
    tmp_path: Path,
) -> None:
    agent = PROGRAM.replace("obs, _ = env.reset()", "obs = env.reset()").replace(
        "obs, reward, terminated, truncated, _", "obs, reward, done, _"
    )
    agent = agent.replace("        done = terminated or truncated\n", "")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "agent.py").write_text(agent, encoding="utf-8")
    (tmp_path / "scripts").mkdir()
    path = tmp_path / "scripts" / "program.py"
    path.write_text("from source.agent import net\n", encoding="utf-8")
    assert el.audit_script(path).verdict == "unbiased"


def test_a_script_that_imports_from_its_own_package_by_name_runs_as_a_module_of_it(
    tmp_path: Path,
) -> None:
    """The package and the script have the same name."""
    package = tmp_path / "program"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text("GAMMA = 0.9\n", encoding="utf-8")
    text = PROGRAM.replace("GAMMA = 0.9\n", "from program.settings import GAMMA\n")
    (package / "program.py").write_text(text, encoding="utf-8")
    assert el.audit_script(package / "program.py").verdict == "unbiased"
