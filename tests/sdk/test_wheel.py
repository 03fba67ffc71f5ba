"""The package as it is published: built, installed where nothing of the source tree is, and used as the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from conftest import Server

PACKAGE = (Path(__file__).parent / "../../sdk/python").resolve()


def run(*words: str | Path, **environment: str) -> str:
    """What a command says; without this environment's settings for Python and Runreel."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RUNREEL"))}
    done = subprocess.run(
        [*map(str, words)], check=False, env={**inherited, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # The backend is pinned beside the tests; nothing is fetched.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, PACKAGE)
    return folder


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel in it, and its dependencies from this one."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    import httpx2  # noqa: PLC0415

    (site / "dependencies.pth").write_text(str(Path(httpx2.__file__).parent.parent))
    return python


def test_the_first_block_of_the_readme_works_as_it_is_pasted(python: Path, server: Server) -> None:
    block = re.search(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert block is not None
    said = run(python, "-W", "error", "-c", block[1], RUNREEL_URL=server.url).splitlines()
    assert said[0] == "1 run.created "
    assert "7 message.completed Three hits, no misses." in said
    assert said[-1] == "8 run.completed "


def test_every_block_of_the_readme_works_pasted_one_after_the_other(python: Path, server: Server) -> None:
    # What needs an extra, and a graph or a model of the reader's, is marked so.
    blocks = re.findall(r"(<!-- not run.*?-->\n)?```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    pasted = [block for mark, block in blocks if not mark]
    assert (len(pasted), len(blocks)) == (4, 10)
    said = run(python, "-W", "error", "-c", "\n".join(pasted), RUNREEL_URL=server.url).splitlines()
    assert "3 interrupt.requested" in said
    assert said[-2:] == ["7 log.info", "8 run.completed"]


def test_what_is_installed_is_the_wheel_with_its_types(python: Path) -> None:
    where = Path(run(python, "-c", "import runreel; print(runreel.__file__)").strip()).parent
    assert python.parent.parent in where.parents
    assert (where / "py.typed").exists()
    version = "import runreel, importlib.metadata as m; print(runreel.__version__ == m.version('runreel'))"
    assert run(python, "-c", version) == "True\n"


def test_nothing_but_httpx2_is_needed(python: Path) -> None:
    needed = "import importlib.metadata as m; print([r for r in m.requires('runreel') if 'extra' not in r])"
    assert run(python, "-c", needed) == "['httpx2<3,>=2.12']\n"


def test_the_archives_hold_the_package_and_nothing_else(built: Path) -> None:
    (wheel,), (archive,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()} == {"runreel", "runreel-0.1.0.dist-info"}
    with tarfile.open(archive) as tar:
        inside = {name.split("/")[1] for name in tar.getnames()}
    assert inside <= {"src", "README.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert {"src", "README.md", "LICENSE"} <= inside
