"""The `generator` command: what it lists, reads and refuses."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from recombine.cli import main
from recombine.cli.generator import Progress, as_typed, lines, summary
from recombine.lab.files import read_json
from recombine.lab.intervals import Interval
from recombine.lab.progress import Watch
from recombine.pictures import FAMILIES, PictureReading, Sampling, family_named
from recombine.pictures.reading import CombinationReading

Run = Callable[..., tuple[int, str, str]]
ENDPOINT = ("--judge-endpoint", "http://127.0.0.1:9/v1", "--judge-model", "some-model")
KEYLESS = (*ENDPOINT, "--judge-key-variable", "none")
ASKED = ("pipe", "--family", "animals-8", "--to", "new")

# The tiny pipelines of the tests of `recombine.pictures`.
_place = Path(__file__).parents[1] / "pictures" / "conftest.py"
_spec = importlib.util.spec_from_file_location("tiny_pipelines", _place)
assert _spec is not None and _spec.loader is not None
_tiny = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_tiny)
torch, diffusers, tokenizer = _tiny.torch, _tiny.diffusers, _tiny.tokenizer
stable_diffusion = _tiny.stable_diffusion


@pytest.fixture
def recombine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> Iterator[Run]:
    """Runs a command in an empty folder; gives its exit code and what it printed."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr("recombine.cli.leave", sys.exit)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    loaded = set(sys.modules)

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()  # what fixtures printed
        with pytest.raises(SystemExit) as left:
            main(["generator", *(str(word) for word in words)])
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    yield call
    for name in set(sys.modules) - loaded:
        if name.startswith("judges_"):
            del sys.modules[name]
    for number, handler in handlers.items():
        signal.signal(number, handler)


def asked(recombine: Run, *words: object) -> dict:
    code, out, err = recombine(*words, "--json")
    assert code == 0, err
    return json.loads(out)


# --- families and prompts ---


def test_every_family_is_listed_with_its_size_and_a_prompt_of_its_own(recombine):
    found = asked(recombine, "--list")["families"]
    assert [one["name"] for one in found] == list(FAMILIES) and len(found) == 31
    sizes = {one["name"]: one["combinations"] for one in found}
    assert sizes["animals-20"] == math.comb(20, 3) and sizes["animal-clothing"] == 10 * 10
    for one in found:
        family = family_named(one["name"])
        assert one["example"] in {family.prompt(int(rank)) for rank in family.ranks()}
    code, out, _ = recombine("--list")
    assert code == 0
    assert all(name in out for name in FAMILIES) and "1140" in out


def test_the_prompts_are_dealt_out_without_making_an_image(recombine):
    words = ("--family", "animals-8", "--prompts-only", "--combinations", 20)
    found = asked(recombine, *words)
    parts = {
        part: [one["prompt"] for one in some]
        for part, some in itertools.groupby(found["prompts"], lambda one: one["part"])
    }
    assert {part: len(some) for part, some in parts.items()} == {
        "fit": 10,
        "validation": 4,
        "test": 6,
    }
    assert len({one["prompt"] for one in found["prompts"]}) == 20
    assert all(any(animal in text for text in parts["fit"])
               for animal in family_named("animals-8").concepts)  # fmt: skip
    assert "penguin" in found["question"] and found["images_each"] == 8
    code, out, _ = recombine(*words)
    assert code == 0
    assert out.splitlines() == [f"{one['part']:<10}  {one['prompt']}" for one in found["prompts"]]
    assert asked(recombine, *words) == found
    assert asked(recombine, *words, "--seed", 1)["prompts"] != found["prompts"]


@pytest.mark.parametrize(
    "words", [["--help"], ["--list"], ["--family", "animals-8", "--prompts-only"]], ids=" ".join
)
def test_help_families_and_prompts_load_nothing_heavy(words, tmp_path):
    heavy = {"jax", "scipy", "matplotlib", "torch", "diffusers"}
    program = (
        "import sys\nfrom recombine.cli import main\n"
        f"sys.modules['torch'] = sys.modules['diffusers'] = None\n"
        "try:\n    main(['generator', *sys.argv[1:]])\n"
        f"finally:\n    assert not [n for n in {heavy} if sys.modules.get(n)]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_shell_completes_the_families(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        main(["completion", "bash"])
    out = capsys.readouterr().out
    assert "chase-chain" in out and "bfloat16" in out and "--judge-endpoint" in out


# --- refusals ---

JUDGES = """
number = 3


def pessimist(image, family, values):
    return dict.fromkeys(family.wanted(values), False)


class Broken:
    def __init__(self):
        raise OSError("no weights here")
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give --family NAME, such as animals-8"),
        (("pipe",), "give --family NAME"),
        (("--family", "animal-8"), "unknown --family 'animal-8': did you mean 'animals-8'?"),
        (("--family", "animals-8"), "give a PIPELINE: a folder that diffusers saved"),
        (("--family", "animals-4", "--prompts-only"), "take a larger family"),
        (("--family", "animals-8", "--combinations", "7"), "--combinations 7: expected at least 8"),
        (("--family", "animals-8", "--images", "0"), "--images 0: expected at least 1"),
        (("--family", "animals-8", "--steps", "0"), "--steps 0: expected at least 1"),
        (("--family", "animals-8", "--set", "height"), "--set takes NAME=VALUE"),
        (("--family", "animals-8", "--guidance", "much"), "invalid float value"),
        (("pipe", "--family", "animals-8"), "give --to FOLDER"),
        (("pipe", "--family", "animals-8", "--to", "file"), "--to file is a file"),
        (("pipe", "--family", "animals-8", "--to", "."), "holds other files: give a new or empty"),
        (ASKED, "give --judge-endpoint URL --judge-model NAME"),
        (ASKED, "--judge package.module:function for a judge of your own"),
        ((*ASKED, *ENDPOINT[:2]), "--judge-model NAME is missing"),
        ((*ASKED, *ENDPOINT[2:]), "--judge-endpoint URL is missing"),
        ((*ASKED, *ENDPOINT, "--judge", "judges_a:pessimist"), "two judges were given"),
        ((*ASKED, *ENDPOINT), "the environment has no OPENAI_API_KEY: export it"),
        ((*ASKED, *ENDPOINT, "--judge-key-variable", "NO_KEY"), "the environment has no NO_KEY"),
        ((*ASKED, *KEYLESS, "--judge-calls", "0"), "--judge-calls 0: expected at least 1"),
        (
            (*ASKED, *KEYLESS, "--judge-endpoint", "example.com"),
            "--judge-endpoint 'example.com': expected a URL such as",
        ),
        ((*ASKED, "--judge", "judges_a"), "--judge judges_a: expected package.module:function"),
        ((*ASKED, "--judge", "judges_b:one"), "there is no module judges_b"),
        ((*ASKED, "--judge", "judges_a.b:one"), "there is no module judges_a.b, neither"),
        ((*ASKED, "--judge", "judges_a:pesimist"), "did you mean 'pessimist'?"),
        ((*ASKED, "--judge", "judges_a:number"), "3 cannot be called; expected a function of"),
        ((*ASKED, "--judge", "judges_a:Broken"), "OSError: no weights here"),
        ((*ASKED, "--judge", "judges_c:one"), "SyntaxError"),
        ((*ASKED, "--judge", "judges_d:one"), "AttributeError: module 'math' has no attribute"),
        ((*ASKED, "--judge", "judges_a:pessimist", "--dtype", "float23"), "did you mean 'float"),
    ],
)
def test_a_wrong_request_is_one_line_that_says_what_to_type(recombine, tmp_path, words, told):
    (tmp_path / "file").touch()
    (tmp_path / "judges_a.py").write_text(JUDGES)
    (tmp_path / "judges_c.py").write_text("def one(:\n")
    (tmp_path / "judges_d.py").write_text("import math\nmath.one\n")
    code, out, err = recombine(*words)
    assert (code, out) == (2, "")
    assert err.startswith("recombine: error: ") and err.count("\n") == 1 and told in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("package", ["torch", "diffusers"])
def test_a_missing_package_is_one_line_that_says_what_to_install(
    recombine, tmp_path, monkeypatch, package
):
    if package == "diffusers":
        monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "judges_a.py").write_text(JUDGES)
    code, out, err = recombine(*ASKED, "--judge", "judges_a:pessimist")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert f"needs the package '{package}': pip install 'recombine[diffusers]'" in err


def test_messages_for_python_become_messages_for_the_command_line():
    assert as_typed("raise most_calls and run again") == "raise --judge-calls and run again"
    assert as_typed("nothing to change here") == "nothing to change here"


# --- what is shown ---


def reading(layers: int, correlation: float, embedding: float | None = 0.2) -> PictureReading:
    row = CombinationReading(
        rank=0, prompt="An image.", decodability=0.5, named=1.0, pixels=0.1,
        prompt_embedding=embedding, shuffled=-0.1, success=0.25, images=4, novelty="seen",
    )  # fmt: skip
    bounds = (correlation - 0.1, correlation + 0.1)
    found = Interval(correlation, *bounds, units=3, method="by hand", level=0.95)
    names = ["decodability", "decodability, given the baselines", "pixels", "shuffled"]
    return PictureReading(
        family="pets", pipeline={"pipeline": "Tiny"}, judge="me",
        combinations={"fit": 4, "validation": 2, "test": 3}, images=36, flagged=2, layer="block.7",
        layers={f"block.{n}": n / 100 for n in range(layers)},
        success=Interval(0.25, 0.1, 0.4, units=3, method="by hand", level=0.95),
        reliability=0.64 if math.isfinite(correlation) else math.nan,
        correlations=dict.fromkeys(names, found), table=(row, row),
    )  # fmt: skip


def test_the_main_numbers_are_shown_best_layer_first():
    found = summary(reading(15, 0.3)) | {"reading": "here/reading.json"}
    text = "\n".join(lines(found))
    assert "success: 0.250 [0.100, 0.400]" in text and "4 images each" in text
    assert "0.640 (no correlation beyond 0.80 can be expected)" in text
    assert text.index("block.14 ") < text.index("block.13 ") < text.index("block.3 ")
    assert "block.2 " not in text and "and 3 more layers" in text
    assert "the same, given the baselines" in text and "0.300 [0.200, 0.400]" in text
    assert "blacked out by the pipeline's own filter: 2 images" in text
    assert text.endswith("reading: here/reading.json")


def test_what_is_not_known_is_null_and_a_dash():
    found = summary(reading(2, math.nan, embedding=None)) | {"reading": "reading.json"}
    assert found["correlations"]["pixels"] == [None, None, None] and found["reliability"] is None
    assert "prompt_embedding" not in found["read_off"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert "reliability of success: –" in "\n".join(lines(found))


def test_progress_tells_images_from_judgements(capsys):
    progress = Progress(Watch())
    for text in ("image 3 of 4: An owl.", "image 4 of 4: A cat.", "judging 1 of 2", "resting"):
        progress(text)
    progress.done()
    assert capsys.readouterr().err.splitlines() == [
        "images: 50 % (An owl.)",
        "images: 100 %",
        "judging: 0 % (1 of 2)",
        "resting",
        "judging: 100 %",
    ]


# --- the whole command, on a pipeline with random weights ---

SIZE = ("--combinations", 20, "--images", 2, "--steps", 2, "--seed", 3)
PARITY = """
from pathlib import Path

import numpy as np


def parity(image, family, values):
    with Path("asked").open("a") as counted:
        counted.write(".")
    if Path("asked").stat().st_size == 5 and Path("sick").exists():
        raise ArithmeticError("the judge is ill")
    there = int(np.asarray(image).sum()) % 2 == 0
    return dict.fromkeys(family.wanted(values), there)
"""


@pytest.fixture
def saved(stable_diffusion, tmp_path: Path) -> Path:
    stable_diffusion.save_pretrained(tmp_path / "tiny pipeline")
    (tmp_path / "judges_parity.py").write_text(PARITY)
    return tmp_path / "tiny pipeline"


@pytest.mark.heavy
def test_a_saved_pipeline_is_read_from_the_command_line(recombine, saved, tmp_path):
    from recombine.pictures import load, read_pipeline

    words = (saved, "--family", "animals-8", "--judge", "judges_parity:parity", *SIZE)
    code, out, err = recombine(*words, "--to", "a")
    assert code == 0, err
    assert "images: 0 %" in err and "judging: 0 %" in err
    assert out.endswith(f"reading: {Path('a') / 'reading.json'}\n")
    assert len((tmp_path / "asked").read_text()) == 12
    found = asked(recombine, *words, "--to", "a")
    assert len((tmp_path / "asked").read_text()) == 12, "a judgement was asked for again"

    from judges_parity import parity  # pyright: ignore[reportMissingImports]

    sampling = Sampling(combinations=20, images=2, steps=2, seed=3)
    by_hand = read_pipeline(load(saved), family_named("animals-8"), parity, "b", sampling)
    assert read_json(tmp_path / "a/reading.json") == read_json(tmp_path / "b/reading.json")
    assert found["judge"] == by_hand.judge and found["images"] == 40
    assert found["success"][0] == by_hand.success.estimate
    assert found["layers"] == dict(by_hand.layers) and found["layer"] in out
    given = by_hand.correlations["decodability, given the baselines"]
    assert f"{given.estimate:.3f} [{given.low:.3f}, {given.high:.3f}]" in out
    assert f"split-half reliability of success: {by_hand.reliability:.3f}" in out


@pytest.mark.heavy
def test_a_run_whose_judge_fails_is_continued_by_the_same_command(recombine, saved, tmp_path):
    words = (saved, "--family", "animals-8", "--judge", "judges_parity:parity", *SIZE, "--quiet")
    (tmp_path / "sick").touch()
    code, out, err = recombine(*words, "--to", "a")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "ArithmeticError: the judge is ill" in err and "judges_parity.py, line 11" in err
    assert len((tmp_path / "asked").read_text()) == 5
    code, _, err = recombine(*words, "--to", "a")
    assert (code, err) == (0, "")
    assert len((tmp_path / "asked").read_text()) == 5 + 12 - 4
    assert recombine(*words, "--to", "b")[0] == 0
    assert (tmp_path / "a/reading.json").read_bytes() == (tmp_path / "b/reading.json").read_bytes()
    code, _, err = recombine(*words, "--to", "a", "--steps", 3)
    assert code == 2 and "made with sampling steps 2, not 3: use another folder" in err


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--set", "height=tall", "width=16"),
            "StableDiffusionPipeline failed on an image: TypeError",
        ),
        (("--set", "hieght=16"), "did you mean 'height'"),
        (("--layers", "no_such.*"), "no block of the UNet2DConditionModel is called no_such.*"),
        (("--device", "cupid"), "cannot load the pipeline"),
    ],
)
def test_what_the_pipeline_cannot_do_is_one_line(recombine, saved, words, told):
    asked = (saved, "--family", "animals-8", "--judge", "judges_parity:parity", *SIZE, "--quiet")
    code, out, err = recombine(*asked, "--to", "a", *words)
    assert (code, out) == (2, "") and told in err
    assert err.startswith("recombine: error: ") and err.count("\n") == 1


@pytest.mark.heavy
def test_a_gpu_that_torch_was_not_built_for_is_one_line(recombine, saved, torch):
    if torch.version.cuda is not None:
        pytest.skip("this torch was built for GPUs")
    words = (saved, "--family", "animals-8", "--judge", "judges_parity:parity")
    code, _, err = recombine(*words, "--to", "a", "--device", "cuda")
    assert code == 2 and "--device cuda: Torch not compiled with CUDA" in err


@pytest.mark.heavy
def test_a_vision_model_is_asked_with_its_key_and_no_more_often_than_allowed(
    recombine, saved, tmp_path, monkeypatch
):
    heard = []
    said = dict.fromkeys(family_named("animals-8").properties(), False)
    reply = json.dumps({"choices": [{"message": {"content": json.dumps(said)}}]}).encode()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.append((self.path, self.headers["Authorization"], body["model"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        monkeypatch.setenv("MY_KEY", "secret")
        words = (saved, "--family", "animals-8", *SIZE, "--to", "a", "--judge-endpoint", url,
                 "--judge-model", "seer", "--judge-key-variable", "MY_KEY")  # fmt: skip
        code, _, err = recombine(*words, "--judge-calls", 5, "--quiet")
        assert code == 2 and "5 calls are spent" in err and "raise --judge-calls" in err
        found = asked(recombine, *words)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert heard == [("/v1/chat/completions", "Bearer secret", "seer")] * 12
    assert found["success"][0] == 0.0 and found["judge"] == f"{url} seer"
    assert len((tmp_path / "a/answers.jsonl").read_text().splitlines()) == 12
    assert not any(b"secret" in file.read_bytes() for file in (tmp_path / "a").glob("*.json*"))
