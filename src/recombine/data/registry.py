"""The sets: what each holds, where its pinned revision lies, and the sum of every file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from recombine.errors import InvalidRequest, unknown

RAW = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class File:
    """One file of a set: its name in the folder, its sum, and where it lies upstream."""

    name: str
    size: int
    sha256: str
    path: str = ""
    """Below the set's `url`; empty where it is the name itself."""

    def __post_init__(self) -> None:
        # A name becomes a path below a folder of ours, so it must not lead out of it.
        if not re.fullmatch(r"\w[\w.=+-]*", self.name) or self.name.endswith(".part"):
            raise InvalidRequest(f"the file name {self.name!r}: expected a plain name")
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise InvalidRequest(f"{self.name}: {self.sha256!r} is no SHA-256 in lower case")
        if self.size < 1:
            raise InvalidRequest(f"{self.name}: a size of at least 1 is expected, got {self.size}")

    @property
    def upstream(self) -> str:
        return self.path or self.name


@dataclass(frozen=True)
class DataSet:
    """A set of files at a pinned revision, its licence among them.

    >>> SETS["picbreeder"].address(SETS["picbreeder"].files[1]).rsplit("/", 2)[1:]
    ['picbreeder_genomes', 'skull.zip']
    """

    name: str
    text: str
    licence: str
    source: str
    revision: str
    url: str
    files: tuple[File, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", self.name):
            raise InvalidRequest(f"the set's name {self.name!r}: expected a-z, 0-9 and hyphens")
        if not re.fullmatch(r"\w[\w.-]*", self.revision):
            raise InvalidRequest(f"the revision {self.revision!r}: expected a plain name")
        if not re.match("https?://", self.url):
            raise InvalidRequest(
                f"the address {self.url!r}: expected one that begins with https://"
            )
        names = [file.name for file in self.files]
        if not names or len(set(names)) < len(names):
            raise InvalidRequest(f"the set {self.name} needs files, each with a name of its own")

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    def address(self, file: File) -> str:
        return f"{self.url}/{quote(file.upstream, safe='/=')}"


def set_named(name: str | DataSet) -> DataSet:
    """The set of this name, or the set itself where it was described by the caller."""
    if isinstance(name, DataSet):
        return name
    if name not in SETS:
        raise unknown("set of data", name, SETS)
    return SETS[name]


def _github(
    name: str, text: str, licence: str, repository: str, revision: str, files: tuple[File, ...]
) -> DataSet:
    return DataSet(
        name=name,
        text=text,
        licence=licence,
        source=f"https://github.com/{repository}",
        revision=revision,
        url=f"{RAW}/{repository}/{revision}",
        files=files,
    )


# Kim and Linzen (2020), with the generalization set divided by Lake and Baroni (2023).
COGS = _github(
    name="cogs",
    text="sentences and their logical forms; unseen cases apart, lexical and structural",
    licence="MIT",
    repository="brendenlake/MLC-ML",
    revision="6098ccc6186a5e7ebf61c390b3b1d13810092b93",
    files=(
        File(
            "dev.tsv",
            522_121,
            "ab66388a309c7ac1ad210c781a6a0ce12281a9ef24619a12422a752cef61bc21",
            "COGS/dev.tsv",
        ),
        File(
            "gen_lexical.tsv",
            3_620_341,
            "970711f35f0d3423c2153701a9e5a12a95ec27aa9c24dd826b32896401c82547",
            "COGS/gen_lexical.tsv",
        ),
        File(
            "gen_structural.tsv",
            1_911_761,
            "f3f60de6bc5dee8b0657d8ba9665ad6cf019905f632dd5b79b9c2f48b5e0abcf",
            "COGS/gen_structural.tsv",
        ),
        File(
            "test.tsv",
            521_111,
            "68f8e51e9f6d9cd22d64efe68dd21d7ea5ba327e9a2359481030161aea757035",
            "COGS/test.tsv",
        ),
        File(
            "train.tsv",
            4_146_574,
            "220b3804b562c0156ee986eff1bdd15c27e52142549362a64f57baf86e304c78",
            "COGS/train.tsv",
        ),
        File("LICENSE", 1_069, "adfc35dacabbcbe8b5e979fa14ec1b89a31f40673e84800edd2ba6fbc985b889"),
    ),
)

# McCoy, Yao, Friedman, Hardy and Griffiths (2024).
EMBERS = _github(
    name="embers",
    text="shift ciphers to decode, GPT-4's answers, and a table of its rot-13 items",
    licence="MIT",
    repository="tommccoy1/embers-of-autoregression",
    revision="5dd6c91ad57cd2d913402b98e4253fda806fbe93",
    files=(
        File(
            "log_rot13dec_highprob_gpt-4-0613.json",
            70_207,
            "6f442203ebf5a81d0f570fc44da1e1a79b974a37478280f064a3821c1fcaee89",
            "logs/rot13dec_highprob_gpt-4-0613_temp=0.0_n=1.json",
        ),
        File(
            "log_rot13dec_lowprob_gpt-4-0613.json",
            70_323,
            "83a6f7608ede6c0d44814c5e4bf49579c1dc6722f24f7e8b186cb1130711dad6",
            "logs/rot13dec_lowprob_gpt-4-0613_temp=0.0_n=1.json",
        ),
        File(
            "log_rot13dec_mediumprob_gpt-4-0613.json",
            70_287,
            "8982412f04775f5f980d620c47baae10d063820fb4e0b4be0d74a4db9dd2f0ab",
            "logs/rot13dec_mediumprob_gpt-4-0613_temp=0.0_n=1.json",
        ),
        File(
            "rot12dec_highprob.jsonl",
            118_822,
            "46adbbcf3551e426cdb5b544a492443e0395bd65ef78c15d481d9261f4e6561f",
            "stimuli/rot12dec_highprob.jsonl",
        ),
        File(
            "rot12dec_lowprob.jsonl",
            118_722,
            "8d2f8d625b98d45988057dc4e09eda773d5defa0f6813e62199d1ec705a723ed",
            "stimuli/rot12dec_lowprob.jsonl",
        ),
        File(
            "rot12dec_mediumprob.jsonl",
            119_022,
            "7ab92605565a0a0f20f2680eecffb489f3b2f1852866fae019587f45d664c748",
            "stimuli/rot12dec_mediumprob.jsonl",
        ),
        File(
            "rot13dec_adversarial.jsonl",
            119_113,
            "3b6edf241a2e554f9196e2a6db771bf7b57b796282e8894595984f1cf8e24d41",
            "stimuli/rot13dec_adversarial.jsonl",
        ),
        File(
            "rot13dec_highprob.jsonl",
            118_822,
            "ac0594d101ad86cd3a7d7e7b36850c9612f66a9aa6e998269f8e715a72d0f71a",
            "stimuli/rot13dec_highprob.jsonl",
        ),
        File(
            "rot13dec_lowprob.jsonl",
            118_722,
            "edb2efacf54f456845b56720797278c3b0ea65b693368afa0e2c00c813dc49b8",
            "stimuli/rot13dec_lowprob.jsonl",
        ),
        File(
            "rot13dec_mediumprob.jsonl",
            119_022,
            "fc76b31a14ec97be0f44ce617bb95813283e6ebeb233bd473ad41dc55279ef4e",
            "stimuli/rot13dec_mediumprob.jsonl",
        ),
        File(
            "table_rot13dec_gpt-4-0613.tsv",
            16_964,
            "6677dcf1ad582074503c39f267f04b8b34172ddc7328456813854819a2ec9423",
            "evaluation/table_rot13dec_gpt-4-0613.tsv",
        ),
        File("LICENSE", 1_066, "c650da6c9cf925fd2aaf04071e4ce0932ecceffc7fbd2017bafc6683cf2b11a6"),
    ),
)

# Secretan et al. (2011); the genomes that Kumar, Clune, Lehman and Stanley (2025) looked into.
PICBREEDER = _github(
    name="picbreeder",
    text="genomes of two evolved pictures, skull and butterfly",
    licence="Apache-2.0",
    repository="akarshkumar0101/fer",
    revision="67c270c197d8243435d6a9ad036e26c9c5e3712d",
    files=(
        File(
            "butterfly.zip",
            3_017,
            "62df8bf336617ffbcf1a981a70d31378453e806efdd1850f4d394da88b106610",
            "picbreeder_genomes/butterfly.zip",
        ),
        File(
            "skull.zip",
            1_817,
            "63adfccc384d6fb48c79719c9336483c478839e1fc4773f289d3aee9fefaabb2",
            "picbreeder_genomes/skull.zip",
        ),
        File("LICENSE", 11_357, "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"),
    ),
)

SETS = {one.name: one for one in (COGS, EMBERS, PICBREEDER)}
