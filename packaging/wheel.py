"""Builds the wheel that holds the program and the Python client.

    python packaging/wheel.py                          a release build for this machine's C library
    python packaging/wheel.py --zig                    the same for every Linux with glibc 2.28 or newer (manylinux)
    python packaging/wheel.py --profile dev            the development build, for tests

Needs `maturin`, and for --zig `ziglang`, from PyPI. What the wheel says of itself is in sdk/python/pyproject.toml, from
which the pure wheel of the client alone is built; here only the build system is another.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENT = ROOT / "sdk" / "python"
MATURIN = """
[tool.maturin]
bindings = "bin"
manifest-path = "{root}/Cargo.toml"
python-source = "{client}/src"
module-name = "runreel"
locked = true
strip = true
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--zig", action="store_true", help="link with zig, against an old glibc")
    parser.add_argument("--profile", default="release", help="the profile of Cargo.toml")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the wheel")
    options = parser.parse_args()
    project = ROOT / "target" / "wheel"
    project.mkdir(parents=True, exist_ok=True)
    for name in ("README.md", "LICENSE"):
        shutil.copy(CLIENT / name, project / name)
    described = re.search(r"^\[project\]\n.*?(?=^\[tool\.)", (CLIENT / "pyproject.toml").read_text(), re.M | re.S)
    assert described, "sdk/python/pyproject.toml describes no project"
    system = '[build-system]\nrequires = ["maturin>=1.9,<2"]\nbuild-backend = "maturin"\n\n'
    (project / "pyproject.toml").write_text(system + described[0] + MATURIN.format(root=ROOT, client=CLIENT))
    platform = ["--zig", "--compatibility", "manylinux_2_28"] if options.zig else ["--compatibility", "linux"]
    command = [sys.executable, "-m", "maturin", "build", "--profile", options.profile, *platform, "--out", options.out]
    return subprocess.run(command, cwd=project, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
