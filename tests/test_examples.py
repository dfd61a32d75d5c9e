"""The worked examples of the documentation are run as they are written, and say what is shown."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from live.standin import StandIn

pytestmark = pytest.mark.slow  # make test-all runs it

ROOT = Path(__file__).resolve().parents[1]
RECOMBINE = "from recombine.cli import main; main()"
BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGING = re.compile(r"took \d|rows at about")  # depends on the machine


def steps(page: str) -> list[tuple[str, list[str]]]:
    """The commands that a page shows, each with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall((ROOT / "docs" / "how-to" / page).read_text("utf-8")):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip() and line != "...":
                found[-1][1].append(line.rstrip())
    return found


def played(page: str, folder: Path, **variables: str) -> list[tuple[str, int, str, list[str]]]:
    """Runs a page from its first command to its last: (command, exit code, output, shown)."""
    (folder / "examples").symlink_to(ROOT / "examples")
    there = {**os.environ, "COLUMNS": "100", **variables}
    done = []
    for command, shown in steps(page):
        program, *words = shlex.split(command)
        if program == "export":
            name, _, value = words[0].partition("=")
            there[name] = variables.get(name, value)
            continue
        start = {"recombine": [sys.executable, "-c", RECOMBINE], "python": [sys.executable]}
        ran = subprocess.run(
            [*start[program], *words], cwd=folder, env=there, capture_output=True, text=True,
            check=False, timeout=600,
        )  # fmt: skip
        done.append((command, ran.returncode, ran.stderr + ran.stdout, shown))
    return done


def verified(done: list[tuple[str, int, str, list[str]]]) -> None:
    """Every line that a page shows came out, and commands end as it says."""
    for command, code, output, shown in done:
        expected = 1 if any("rule broken" in line for line in shown) else 0
        assert code == expected, f"{command}\n{output}"
        lines = [line.rstrip() for line in output.splitlines()]
        for line in shown:
            assert line in lines or CHANGING.search(line), f"{command}: {line}\n{output}"


def card(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "card.json").read_text("utf-8"))


def test_the_example_with_a_table_comes_out_as_shown(tmp_path: Path) -> None:
    done = played("example-table.md", tmp_path)
    verified(done)
    assert {c.split()[1] for c, *_ in done} >= {"audit", "collect", "split", "card"}
    found = card(tmp_path / "parcels" / "card")
    assert found["decision"]["verdict"] == "does not compose"
    # The gaps of history are what fails, and what is to be collected first.
    gaps = {"goods=glass, region=mountains", "goods=medicine, region=islands"}
    assert {one["where"] for one in found["slices"]} == gaps
    first = {f"goods={r['goods']}, region={r['region']}" for r in found["collect"][:2]}
    assert first == gaps


def routed(prompt: str) -> str:
    """What the stand-in says: it sends refunds of watches to repair, and is upset by anger."""
    text = prompt.partition("\n\n")[2]
    low = text.lower()
    if "money back" in low or "refund" in low:
        return "repair" if "watch" in low else "billing"
    if "parcel" in low or "delivery" in low:
        return "billing" if "!!" in text else "shipping"
    return "watch shop" if "watch" in low else "repair"


def fill_in(sheet: Path, truth: Path) -> None:
    """What a person would do: the right factors, from what the texts were made of."""
    with truth.open(newline="", encoding="utf-8") as file:
        right = {row["text"]: row for row in csv.DictReader(file)}
    with sheet.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns, rows = list(reader.fieldnames or ()), list(reader)
    for row in rows:
        for name in ("device", "trouble", "tone"):
            row[f"{name} (yours)"] = right[row["text"]][name]
    with sheet.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def test_the_example_with_an_endpoint_comes_out_as_shown(tmp_path: Path) -> None:
    with StandIn(routed) as server:
        done = played("example-llm.md", tmp_path, ROUTER_URL=server.url)
        asked = len(server.answered)
    verified(done)
    assert {c.split()[1] for c, *_ in done} >= {"tag", "audit", "card", "collect"}
    found = card(tmp_path / "mail" / "card")
    assert {one["where"] for one in found["slices"]} == {
        "device=watch, trouble=refund", "trouble=delivery, tone=angry",
    }  # fmt: skip
    (tone,) = [s for s in found["swaps"] if s["factor"] == "tone"]
    assert tone["leaks"] > 0.1
    # Each text is asked once, however many instruments read its answer.
    with (tmp_path / "mail" / "messages.csv").open(newline="", encoding="utf-8") as file:
        assert asked == len({row["text"] for row in csv.DictReader(file)})
    # A sheet that is filled in measures the tags; here they are all right.
    fill_in(tmp_path / "mail" / "tagged.check.csv", tmp_path / "mail" / "truth.csv")
    ran = subprocess.run(
        [sys.executable, "-c", RECOMBINE, "tag", "--check", "mail/tagged.check.csv", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    factors = json.loads(ran.stdout)["factors"]
    assert [one["accuracy"]["estimate"] for one in factors.values()] == [pytest.approx(1.0)] * 3


@pytest.mark.heavy
def test_the_example_with_images_finds_what_training_lacked(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra 'torch': make test-all installs it")
    done = played("example-images.md", tmp_path, OMP_NUM_THREADS="1")
    assert [code for _, code, *_ in done] == [0] * len(done), done[-1][2]
    assert {c.split()[1] for c, *_ in done} >= {"adapt", "audit", "card"}
    found = card(tmp_path / "pictures" / "card")
    assert found["decision"]["verdict"] == "does not compose"
    lost = {"red, shape=disc", "red, shape=triangle", "green, shape=square", "blue, shape=cross"}
    assert {f"colour={pair}" for pair in lost} <= {one["where"] for one in found["slices"]}
    assert {one["factor"] for one in found["probes"]} == {"colour", "shape", "side", "ground"}
    assert found["swaps"] and found["collect"]
