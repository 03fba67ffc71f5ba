"""A copy of the program, to be spoilt."""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def copied(name: str) -> Path:
    """Copies what is compiled to target/tmp, with a manifest that lacks the targets whose files are not copied."""
    copy = ROOT / "target/tmp" / name
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for folder in ["backend", "migrations", "docs", ".sqlx", "web/dist"]:
        shutil.copytree(ROOT / folder, copy / folder)
    for file in ["Cargo.toml", "Cargo.lock", "README.md", "rust-toolchain.toml", "web/build.rs"]:
        shutil.copy(ROOT / file, copy / file)
    sections = (copy / "Cargo.toml").read_text().split("\n[")
    kept = [section for section in sections if not section.startswith(("[test", "[bench"))]
    (copy / "Cargo.toml").write_text("\n[".join(kept))
    return copy
