from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from recombine._version import __version__

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "recombine"

# Spelt with brackets, so that this file does not match itself.
FORBIDDEN = {
    "a home directory": re.compile(r"/(?:[h]ome|[U]sers)/[a-z][\w.-]*/|/[r]oot/"),
    "a package index": re.compile(r"index[-_]url|find[-_]links|https?://[^\s\"'`)]+/[s]imple\b"),
}
BINARY = {".safetensors", ".png", ".npz", ".gz", ".zip", ".whl", ".sqlite", ".db"}


def repository_files() -> list[Path]:
    """Every file that is, or would be, committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so which files belong to it is not known")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    files = (ROOT / name for name in listed.split("\0") if name)
    return [file for file in files if file.is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed, so no wheel can be built offline")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.mark.parametrize("module", ["recombine", "recombine.lab.cost_throughput"])
def test_importing_the_package_imports_no_heavy_library(module):
    heavy = {"jax", "jaxlib", "matplotlib", "scipy", "equinox", "optax", "torch"}
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & {heavy}))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout.strip() == ""


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    belonging = {file for file in repository_files() if SOURCE in file.parents}
    expected = {file.relative_to(SOURCE.parent).as_posix() for file in belonging}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == expected


def test_the_wheel_is_typed_and_brings_its_templates_and_tables(wheel):
    names = set(wheel.namelist())
    assert "recombine/py.typed" in names
    assert "recombine/lab/throughput.json" in names
    assert {Path(name).suffix for name in names} >= {".j2", ".css", ".json"}


def test_the_wheel_names_its_version_licence_and_command(wheel):
    about = f"recombine-{__version__}.dist-info"
    metadata = wheel.read(f"{about}/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: MIT\n" in metadata
    assert "recombine = recombine.cli:main" in wheel.read(f"{about}/entry_points.txt").decode()


def test_changelog_and_citation_name_the_version_of_the_package():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings[0] == __version__
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == __version__  # type: ignore[index]


def test_every_test_requirement_is_pinned():
    pinned = re.findall(r"^([\w.-]+)==\S+$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    pinned = {name.lower().replace("_", "-") for name in pinned}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    names = {re.split(r"[\[<>=!~ ]", requirement)[0].lower() for requirement in wanted}
    assert names <= pinned


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names_the_machine_it_was_written_on(what):
    found = []
    for file in repository_files():
        if file.suffix in BINARY:
            continue
        text = file.read_text("utf-8", errors="replace")
        found += [f"{file.relative_to(ROOT)}: {m[0]}" for m in FORBIDDEN[what].finditer(text)]
    assert found == []


def test_no_file_names_the_folder_it_was_written_in():
    here = str(ROOT) + os.sep
    named = [
        str(file.relative_to(ROOT))
        for file in repository_files()
        if here in file.read_text("utf-8", errors="replace")
    ]
    assert named == []


def test_annotations_name_no_class_that_is_not_there():
    """ruff's rule for it is off, since it takes a shape such as "module" for a name."""
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821",
               "--output-format", "concise", "src", "tests", "tools", "benchmarks"]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode in (0, 1), found.stderr
    # Shapes are written small and classes with a capital.
    missing = [line for line in found.stdout.splitlines() if re.search(r"name `[A-Z]", line)]
    assert not missing, "\n".join(missing)
