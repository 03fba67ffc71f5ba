"""Makes the wheel that holds a built program and the Python client.

    python packaging/wheel.py target/release/runreel --out dist

It is the client's own wheel (sdk/python, built by pip) with the program, its manual pages and its completions added,
and with the platform that the program needs in its name: the newest glibc whose symbols it asks for. So pip installs it
where it starts, and nowhere else. Which glibc that is, the build decides: .github/workflows/release.yml links with zig
against 2.28. Run it where the program runs: the program itself writes the pages and completions.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

CLIENT = Path(__file__).resolve().parent.parent / "sdk" / "python"
COMPLETIONS = {
    "bash": "bash-completion/completions/runreel",
    "zsh": "zsh/site-functions/_runreel",
    "fish": "fish/vendor_completions.d/runreel.fish",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path, help="the built program")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="the folder of the wheel")
    options = parser.parse_args()
    program = options.program.resolve(strict=True)
    tag = f"py3-none-{runs_on(program.read_bytes())}"
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--wheel-dir", folder, CLIENT], check=True)
        [client] = Path(folder).glob("*.whl")
        wheel = options.out / client.name.replace("py3-none-any", tag)
        with ZipFile(client) as pure:
            files = {name: (pure.read(name), 0o644) for name in pure.namelist()}
        files |= additions(program, client.name.removesuffix("-py3-none-any.whl"), Path(folder) / "man")
    write(wheel, files, tag)
    print(wheel)
    return 0


def runs_on(program: bytes) -> str:
    """The platform of a program: what may be too much of a demand, but never too little."""
    machine = platform.machine()
    if program.startswith(b"\x7fELF"):
        asked = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", program)]
        if not asked:
            sys.exit("the program is not linked with glibc, and there is no wheel for other C libraries")
        return f"manylinux_2_{max(asked)}_{machine}"
    # What Rust links for.
    return f"macosx_11_0_{machine}" if machine == "arm64" else f"macosx_10_12_{machine}"


def additions(program: Path, release: str, pages: Path) -> dict[str, tuple[bytes, int]]:
    """What pip puts into the environment's own folders: `bin` and `share`."""
    files = {f"{release}.data/scripts/runreel": (program.read_bytes(), 0o755)}
    subprocess.run([program, "man", pages], check=True)
    for page in sorted(pages.iterdir()):
        files[f"{release}.data/data/share/man/man1/{page.name}"] = (page.read_bytes(), 0o644)
    for shell, name in COMPLETIONS.items():
        script = subprocess.run([program, "completions", shell], check=True, capture_output=True).stdout
        files[f"{release}.data/data/share/{name}"] = (script, 0o644)
    return files


def write(wheel: Path, files: dict[str, tuple[bytes, int]], tag: str) -> None:
    [record] = [name for name in files if name.endswith(".dist-info/RECORD")]
    del files[record]
    about = record.replace("RECORD", "WHEEL")
    said = re.sub(rb"(?m)^(Root-Is-Purelib|Tag): .*$", rb"", files[about][0]).strip()
    files[about] = (said + f"\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644)
    lines = [f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in files.items()]
    files[record] = ("".join([*lines, f"{record},,\n"]).encode(), 0o644)
    with ZipFile(wheel, "w", ZIP_DEFLATED, compresslevel=9) as packed:
        for name, (content, mode) in files.items():
            # The same bytes from the same program: no time of now in it.
            entry = ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = ZIP_DEFLATED
            packed.writestr(entry, content)


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


if __name__ == "__main__":
    sys.exit(main())
