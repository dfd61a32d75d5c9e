"""Models on which other tools have been measured: sizes, rules, and how many rows those need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Rows that allpairspy needs for all pairs: the fewer of what its own page says and of what
# version 2.5.1 gave when measured.
PLAIN: dict[str, tuple[list[int], int]] = {
    "2^3": ([2] * 3, 4),
    "3^4": ([3] * 4, 9),
    "10^2": ([10] * 2, 100),
    "3^13": ([3] * 13, 17),
    "2^20": ([2] * 20, 10),
    "4^10": ([4] * 10, 31),
    "5^10": ([5] * 10, 47),
    "6^6": ([6] * 6, 51),
    "7^7": ([7] * 7, 77),
    "8^8": ([8] * 8, 102),
    "3^4 2^10": ([3] * 4 + [2] * 10, 15),
    "5 3^8 2^2": ([5] + [3] * 8 + [2] * 2, 24),
    "5 4^4 3^11 2^5": ([5] + [4] * 4 + [3] * 11 + [2] * 5, 29),
    "6 5 4^6 3^8 2^3": ([6, 5] + [4] * 6 + [3] * 8 + [2] * 3, 37),
    "7 6 5 4^6 3^8 2^3": ([7, 6, 5] + [4] * 6 + [3] * 8 + [2] * 3, 44),
    "6^9 4^3 2^10": ([6] * 9 + [4] * 3 + [2] * 10, 68),
    "2^100": ([2] * 100, 14),
    "4^15 3^17 2^29": ([4] * 15 + [3] * 17 + [2] * 29, 34),
    "4 3^39 2^35": ([4] + [3] * 39 + [2] * 35, 26),
    "10^20": ([10] * 20, 193),
}
LARGE = ("2^100", "4^15 3^17 2^29", "4 3^39 2^35", "10^20", "6^9 4^3 2^10")


@dataclass(frozen=True)
class Ruled:
    """A model with rules, the same rules as a function of a beginning of a row, and rows."""

    values: dict[str, list[str]]
    rules: list[str]
    allows: Callable[[dict[str, str]], bool]
    rows: int  # that allpairspy 2.5.1 gives; they leave some possible pairs out
    covered: int  # pairs they cover


def _both(row: dict[str, str], one: str, a: str, two: str, b: str) -> bool:
    return row.get(one) == a and row.get(two) == b


RULED = {
    "disks": Ruled(
        {
            "layout": ["plain", "joined", "striped", "mirrored", "parity"],
            "gigabytes": ["1", "4", "16", "64", "256", "1024"],
            "format": ["quick", "thorough"],
            "files": ["old", "wide", "modern"],
            "block": ["512", "4096", "32768", "65536"],
            "packed": ["on", "off"],
        },
        [
            'IF [files] = "old" THEN [gigabytes] <= 4;',
            'IF [files] = "wide" THEN [gigabytes] < 64;',
            'IF [packed] = "on" THEN [files] = "modern" AND [block] <= 4096;',
        ],
        lambda row: (
            not (
                (row.get("files") == "old" and int(row.get("gigabytes", 0)) > 4)
                or (row.get("files") == "wide" and int(row.get("gigabytes", 0)) >= 64)
                or (row.get("packed") == "on" and row.get("files", "modern") != "modern")
                or (row.get("packed") == "on" and int(row.get("block", 0)) > 4096)
            )
        ),
        28,
        176,
    ),
    "pages": Ruled(
        {
            "system": ["windows", "mac", "linux", "phone", "tablet"],
            "browser": ["fire", "chrome", "safari", "edge"],
            "network": ["fast", "slow", "none"],
            "language": ["en", "de", "ar", "zh", "hi", "sw"],
            "theme": ["light", "dark"],
            "reader": ["on", "off"],
            "zoom": ["1", "2"],
        },
        [
            'IF [browser] = "safari" THEN [system] IN {"mac", "phone", "tablet"};',
            'IF [browser] = "edge" THEN [system] = "windows";',
            'IF [system] = "tablet" AND [theme] = "dark" THEN [zoom] <> "2";',
        ],
        lambda row: (
            not (
                (row.get("browser") == "safari" and row.get("system") in ("windows", "linux"))
                or (row.get("browser") == "edge" and row.get("system", "windows") != "windows")
                or (_both(row, "system", "tablet", "theme", "dark") and row.get("zoom") == "2")
            )
        ),
        26,
        226,
    ),
    "camera": Ruled(
        {
            "light": ["day", "dusk", "night", "flash"],
            "lens": ["wide", "normal", "tele"],
            "scene": ["street", "forest", "sea", "room", "snow"],
            "speed": ["slow", "middle", "fast"],
            "stand": ["hand", "tripod"],
            "colour": ["warm", "cold", "grey"],
            "rain": ["yes", "no"],
        },
        [
            "IF light=night AND stand=hand THEN speed<>slow",
            "IF scene=room THEN rain=no",
            "IF light=flash THEN scene=room",
        ],
        lambda row: (
            not (
                (_both(row, "light", "night", "stand", "hand") and row.get("speed") == "slow")
                or _both(row, "scene", "room", "rain", "yes")
                or (row.get("light") == "flash" and row.get("scene", "room") != "room")
                or _both(row, "light", "flash", "rain", "yes")
            )
        ),
        15,
        175,
    ),
}
