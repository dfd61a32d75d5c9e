"""What can be typed: every command with its arguments, help and an example."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import NoReturn

from recombine._lazy import load
from recombine._version import __version__
from recombine.studies import PRESETS, REGISTRY

COMMANDS = "recombine.cli.commands"
LIVE = {
    "battery": "How deep a language model composes what it is told.",
    "embers": "Whether a language model does better where answers are probable.",
    "constraints": "Whether a language model keeps to stated constraints.",
    "subgraphs": "Whether a language model solves what it has seen the parts of.",
}
# Commands about a user's own data and model: what for, an example, and the module behind.
OWN = {
    "audit": (
        "What your data covers, what it lacks, and where a model fails for it.",
        "recombine audit train.csv --factors colour,shape --eval test.csv --outcome correct",
        "recombine.cli.auditing",
    ),
    "collect": (
        "Which combinations to collect next, for a budget.",
        "recombine collect train.csv --factors colour,shape,size --budget 50",
        "recombine.cli.collecting",
    ),
    "split": (
        "Splits a table so that the test holds combinations that training lacks.",
        "recombine split data.csv --factors colour,shape --method combination --to parts",
        "recombine.cli.splitting",
    ),
    "tag": (
        "Derives factors from text: by pattern, word list, function or endpoint.",
        "recombine tag reviews.csv --column text --with tags.toml --to tagged.csv",
        "recombine.cli.tagging",
    ),
    "probe": (
        "Whether factors can be read off activations, also for new combinations.",
        "recombine probe acts.npz --targets z.npy --groups combo.npy",
        "recombine.cli.probing",
    ),
    "card": (
        "One report on your model and data: does it compose, where not, what to collect.",
        "recombine card my_adapter.py:model --data test.csv --train train.csv --factors "
        "colour,shape --label answer",
        "recombine.cli.cards",
    ),
    "adapt": (
        "Begins an adapter for your own model, and checks one.",
        "recombine adapt --init torch > my_adapter.py",
        "recombine.cli.adapting",
    ),
}


class Help(argparse.HelpFormatter):
    """Help whose examples can be copied: an option is never broken at its hyphen."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.fill(
            " ".join(text.split()),
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line that name what was probably meant."""

    def error(self, message: str) -> NoReturn:
        known = set(self._known())
        words = message.replace("'", " ").replace(":", " ").split()
        for word in sorted(words, key=lambda word: not word.startswith("-")):
            alike = [name for name in known if name.startswith("-") == word.startswith("-")]
            near = difflib.get_close_matches(word, sorted(alike), n=1, cutoff=0.6)
            if near and word not in known:
                message += f"; did you mean {near[0]}?"
                break
        print(f"recombine: error: {message} (try {self.prog} --help)", file=sys.stderr)
        sys.exit(2)

    def _known(self) -> Iterator[str]:
        """Every command and option that can be typed here or further on."""
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices
                for parser in action.choices.values():
                    yield from parser._known()


def build() -> argparse.ArgumentParser:
    """The whole command line; nothing heavy is imported before a command runs."""
    parser = Parser(
        prog="recombine",
        description="A laboratory for compositional generalization.",
        epilog="Start with `recombine demo`, then `recombine list`.",
    )
    parser.add_argument("--version", action="version", version=f"recombine {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(
        name: str, text: str, example: str, under: argparse._SubParsersAction | None = None,
        function: str | None = None,
    ) -> argparse.ArgumentParser:  # fmt: skip
        made = (under or commands).add_parser(
            name, help=text, description=text, epilog=f"example: {example}", formatter_class=Help
        )
        made.add_argument("--json", action="store_true", help="print JSON for machines")
        place = os.environ.get("RECOMBINE_STORE", "runs")
        made.add_argument("--store", default=place, metavar="DIR", help=f"default: {place}")
        made.set_defaults(run=_later(function or name.replace("-", "_")))
        return made

    made = command("list", "Studies, and with --all every part.", "recombine list --all")
    made.add_argument("--all", action="store_true", help="families, supports, encodings, ... too")

    made = command("plan", "What a study would cost, before it runs.",
                   "recombine plan data-scaling --preset paper")  # fmt: skip
    _study(made)

    made = command("run", "Runs a study to its verdict; continues where it stopped.",
                   "recombine run coverage --preset quick --set width=64,128 seeds=5")  # fmt: skip
    _study(made)
    _running(made)
    made.add_argument(
        "--adopt", action="store_true",
        help="continue checkpoints written on another kind of machine",
    )  # fmt: skip

    made = command("repeat", "Runs a study on other seeds, too, and says which verdicts hold.",
                   "recombine repeat boundary --preset quick --times 3")  # fmt: skip
    _study(made)
    made.add_argument("--times", type=int, default=2,
                      help="sets of seeds in all (default: 2)")  # fmt: skip
    _running(made)

    made = command("status", "What is done, running, failed and planned.",
                   "recombine status coverage --preset quick")  # fmt: skip
    _study(made, optional=True)

    made = command("report", "Writes a study's report from the store.",
                   "recombine report coverage --preset quick --to docs/")  # fmt: skip
    _study(made)
    made.add_argument("--to", default=None, metavar="DIR", help="where to (default: the store)")

    made = command("show", "One cell: its request, scores and readings.",
                   "recombine show 3ac710")  # fmt: skip
    made.add_argument("cell", nargs="?", default=None,
                      help="an id, or its first letters; without it, all cells")  # fmt: skip

    made = command(
        "coverage", "What a support covers, and how new the rest is.",
        "recombine coverage --modules 16 --active 3 --held-out .25 --rule popular",
    )  # fmt: skip
    made.add_argument("--modules", type=int, default=16)
    made.add_argument("--active", type=int, default=3, help="at most so many modules at a time")
    made.add_argument(
        "--levels",
        default="",
        help="one value per factor instead: how many each has, such as 4,5,5,5",
    )
    made.add_argument("--held-out", type=float, default=0.25, help="share of the combinations")
    made.add_argument("--rule", default="random")
    made.add_argument("--count", type=int, default=None, help="trained combinations (fixed-size)")
    made.add_argument("--law", default=None, help="how that number grows with the modules")
    made.add_argument("--seed", type=int, default=0)

    made = command(
        "construct", "Writes a teacher down as a network, without training.",
        "recombine construct hyperteacher --modules 16 --active 3 --tolerance .05",
    )  # fmt: skip
    made.add_argument("family", help="hyperteacher or additive")
    made.add_argument("--modules", type=int, default=16)
    made.add_argument("--active", type=int, default=3, help="at most so many modules at a time")
    made.add_argument("--units", type=int, default=16,
                      help="the teacher's inputs, hidden units and outputs")  # fmt: skip
    made.add_argument("--tolerance", type=float, default=None,
                      help="no answer may be off by more (default: 16 segments)")  # fmt: skip
    made.add_argument("--segments", type=int, default=None,
                      help="pieces of each square, instead of a tolerance")  # fmt: skip
    made.add_argument("--method", default="segments", help="segments, or depth for fewer neurons")
    made.add_argument("--encoding", default="identity", help="how the network is told its task")
    made.add_argument("--seed", type=int, default=0, help="which teacher")
    made.add_argument("--samples", type=int, default=4_000, help="tasks on which it is measured")
    made.add_argument("--memory", type=float, default=None, metavar="GB",
                      help="room for the weights (default: a quarter of what is free)")  # fmt: skip
    made.add_argument("--to", default=None, metavar="FILE", help="a safetensors file to save it in")

    made = command(
        "generator", "Reads your own text-to-image pipeline; continues where it stopped.",
        "recombine generator path/to/pipeline --family animals-8 --to readings/animals "
        "--judge-endpoint https://api.example.com/v1 --judge-model some-vision-model",
    )  # fmt: skip
    _generator(made)

    data = commands.add_parser("data", help="Sets of data: list, get.",
                               epilog="example: recombine data get cogs")  # fmt: skip
    verbs = data.add_subparsers(dest="verb", metavar="VERB", required=True)
    command("list", "The sets, their licences, and where they are found.",
            "recombine data list", verbs, "recombine.cli.data:data_list")  # fmt: skip
    made = command("get", "Downloads a set, checks its sums and keeps it in the cache.",
                   "recombine data get cogs", verbs, "recombine.cli.data:data_get")  # fmt: skip
    made.add_argument("dataset", metavar="NAME", help="one of recombine data list")
    made.add_argument("--folder", default=None, metavar="DIR",
                      help="use the files in this folder, without a network")  # fmt: skip
    made.add_argument("--from", dest="source", default=None, metavar="DIR",
                      help="copy them from a folder or a checkout of their repository")  # fmt: skip
    made.add_argument("--quiet", action="store_true", help="no progress")

    for kit, text in LIVE.items():
        made = command(
            kit, text, f"recombine {kit} --endpoint https://api.example.com/v1 --model some-model "
            f"--to answers/{kit}", function="recombine.cli.live:run",
        )  # fmt: skip
        _live(made)
        if kit == "embers":  # the others ask in English, which no network trained here reads
            made.add_argument("--cell", default=None, metavar="ID",
                              help="a network trained here instead, of the store")  # fmt: skip
        if kit == "constraints":
            made.add_argument("--against", default=None, metavar="FOLDER",
                              help="a finished run over the same instances: is the share of "
                                   "satisfied constraints the same?")  # fmt: skip

    for name, (text, example, module) in OWN.items():
        made = command(name, text, example, function=f"{module}:run")
        load(f"{module}:arguments")(made)

    made = command("demo", "A study in two minutes, from training to report.", "recombine demo")
    made.add_argument("--quiet", action="store_true", help="no progress")

    made = command("doctor", "Devices, versions, precision and matmul ceiling.",
                   "recombine doctor")  # fmt: skip

    made = command("bundle", "Packs results into files of bounded size.",
                   "recombine bundle results.zip --kinds cell,reading,round")  # fmt: skip
    made.add_argument("out", help="the first file; more are numbered")
    made.add_argument("--kinds", default="cell,reading,round")
    made.add_argument("--weights", action="store_true", help="with all weights")
    made.add_argument("--max-mib", type=float, default=15.0, help="size of a file")

    made = command("import", "Verifies bundles and merges them into a store.",
                   "recombine import results.zip", function="import_bundles")  # fmt: skip
    made.add_argument("files", nargs="+")

    store = commands.add_parser("store", help="Looks after a store: du, verify, clean.",
                                epilog="example: recombine store du --store runs")  # fmt: skip
    verbs = store.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, text in (
        ("du", "How much room each kind of node takes."),
        ("verify", "Checks every sum; --set-aside moves damaged nodes away."),
        ("clean", "Removes what this store wrote and no longer needs."),
    ):
        made = command(verb, text, f"recombine store {verb}", verbs, f"store_{verb}")
        if verb == "verify":
            made.add_argument("--set-aside", action="store_true")
        if verb == "clean":
            made.add_argument("--dry-run", action="store_true")

    made = command("completion", "Prints completion for a shell.",
                   "recombine completion bash > /etc/bash_completion.d/recombine")  # fmt: skip
    made.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    return parser


def _later(name: str) -> Callable[[argparse.Namespace], int | None]:
    path = name if ":" in name else f"{COMMANDS}:{name}"
    return lambda chosen: load(path)(chosen)


def _study(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("study", nargs="?" if optional else None, default=None)
    parser.add_argument("--preset", default="quick", help=f"one of {', '.join(PRESETS)}")
    parser.add_argument("--set", nargs="+", action="extend", default=[], dest="settings",
                        metavar="NAME=VALUE",
                        help="grid values, such as width=64,128 seeds=5")  # fmt: skip


def _running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for", dest="time", metavar="TIME", default=None,
        help="stop at a border after this long, such as 9m, and continue later",
    )  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no progress")


def _generator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", nargs="?", default=None,
                        help="a folder that diffusers saved, or a name on its hub")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="the families of prompts; reads none")
    parser.add_argument("--prompts-only", action="store_true",
                        help="the prompts it would use; makes no image")  # fmt: skip
    # Not `family`: that is `construct`'s, with other names for a shell to complete.
    parser.add_argument("--family", dest="prompt_family", default=None, metavar="NAME",
                        help="a family of prompts (--list shows them)")  # fmt: skip
    parser.add_argument("--to", default=None, metavar="FOLDER",
                        help="for images, judgements and the reading")  # fmt: skip
    parser.add_argument("--judge-endpoint", default=None, metavar="URL",
                        help="a vision model that speaks OpenAI's chat completions")  # fmt: skip
    parser.add_argument("--judge-model", default=None, metavar="NAME", help="its name there")
    parser.add_argument("--judge-key-variable", default="OPENAI_API_KEY", metavar="NAME",
                        help="of the environment, with its key; or none "
                             "(OPENAI_API_KEY)")  # fmt: skip
    parser.add_argument("--judge-calls", type=int, default=None, metavar="N",
                        help="ask it at most so often")  # fmt: skip
    parser.add_argument("--judge", default=None, metavar="MODULE:FUNCTION",
                        help="a judge of your own instead")  # fmt: skip
    parser.add_argument("--combinations", type=int, default=100, metavar="N", help="prompts (100)")
    parser.add_argument("--images", type=int, default=8, metavar="N", help="of each prompt (8)")
    parser.add_argument("--steps", type=int, default=30, metavar="N", help="of denoising (30)")
    parser.add_argument("--guidance", type=float, default=None, metavar="SCALE",
                        help="default: the pipeline's own")  # fmt: skip
    parser.add_argument("--set", nargs="+", action="extend", default=[], dest="settings",
                        metavar="NAME=VALUE",
                        help="for the pipeline, such as height=512 width=512")  # fmt: skip
    parser.add_argument("--layers", nargs="+", default=None, metavar="PATTERN",
                        help="blocks to record, such as 'up_blocks.*.attentions.*'")  # fmt: skip
    parser.add_argument("--device", default="cpu", help="such as cuda (cpu)")
    parser.add_argument("--dtype", default="float32", help="float32, float16 or bfloat16")
    parser.add_argument("--seed", type=int, default=0, help="which prompts and images")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def _live(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--endpoint", default=None, metavar="URL",
                        help="of a model that speaks OpenAI's chat completions")  # fmt: skip
    parser.add_argument("--model", default=None, metavar="NAME", help="its name there")
    parser.add_argument("--hf", default=None, metavar="FOLDER",
                        help="a local model instead, as transformers saves it")  # fmt: skip
    parser.add_argument("--key-variable", default="OPENAI_API_KEY", metavar="NAME",
                        help="of the environment, with the key; or none "
                             "(OPENAI_API_KEY)")  # fmt: skip
    parser.add_argument("--to", default=None, metavar="FOLDER",
                        help="for answers and report; the same folder continues")  # fmt: skip
    parser.add_argument("--items", type=int, default=None, metavar="N",
                        help="questions of each condition")  # fmt: skip
    parser.add_argument("--set", nargs="+", action="extend", default=[], dest="settings",
                        metavar="NAME=VALUE",
                        help="the kit's own options (a wrong name lists them)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=None, help="which questions (0)")
    parser.add_argument("--most-calls", type=int, default=None, metavar="N",
                        help="ask at most so often now, retries included")  # fmt: skip
    parser.add_argument("--price-in", type=float, default=None, metavar="P",
                        help="of a million tokens of questions, for the estimate")  # fmt: skip
    parser.add_argument("--price-out", type=float, default=None, metavar="P",
                        help="of a million tokens of answers")  # fmt: skip
    parser.add_argument("--longest", type=int, default=None, metavar="TOKENS",
                        help="an answer may be (default: the kit's)")  # fmt: skip
    parser.add_argument("--workers", type=int, default=4, metavar="N",
                        help="questions under way at a time (4)")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS",
                        help="for one answer of an endpoint (120)")  # fmt: skip
    parser.add_argument("--device", default="cpu", help="of a local model, such as cuda (cpu)")
    parser.add_argument("--dtype", default="float32", help="of a local model (float32)")
    parser.add_argument("--yes", action="store_true", help="do not ask whether the price is right")
    parser.add_argument("--dry-run", action="store_true",
                        help="the estimate and three questions; asks nothing")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no progress")


def with_choices(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The same with the names of studies, presets and the like, which a shell can then complete.

    Not in the parser itself: its own message for a wrong choice is longer and less helpful.
    """
    from recombine.data import SETS
    from recombine.pictures import FAMILIES
    from recombine.pictures.pipelines import DTYPES

    names = {
        "study": tuple(REGISTRY),
        "preset": PRESETS,
        "prompt_family": tuple(FAMILIES),
        "dtype": DTYPES,
        "dataset": tuple(SETS),
    }
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for further in action.choices.values():
                with_choices(further)
        elif action.dest in names:
            action.choices = names[action.dest]
    return parser
