"""`python -m benchmarks`: measure, print, write. Run it in the root of the repository.

python -m benchmarks peers --dims 1 --eager       a first look
python -m benchmarks peers                        all of it; in 3D compiling alone takes minutes
python -m benchmarks solution                     from the command to a trained and evaluated operator, beside the peers
python -m benchmarks updates                      an update of HERO and of SOAP over a plain one
python -m benchmarks sizes --parts 1 2            updates at people's sizes, beside the peers and the authors
python -m benchmarks growth                       time and memory of an update against everything that makes it large
python -m benchmarks memory memory.png            memory of an update against the length of its unroll
python -m benchmarks streaming --storage gzip     training from a file next to training from memory
python -m benchmarks snapshots                    a folder of 10,000 files with one state each: time and memory
python -m benchmarks tuning table.csv --tasks burgers   the grid that the preset `recipe` was chosen from
python -m benchmarks network table.csv            networks of several sizes on files of several kinds
python -m benchmarks crashes                      kills at all points for all strategies, and at random moments
python -m benchmarks fuzz --values 20000          random values: accepted, or refused in a sentence
python -m benchmarks soak --minutes 60            mixed work; memory and handles over time
python -m benchmarks evaluations --count 500      memory and handles over evaluations in one process
python -m benchmarks anywhere                     the tests as other processors and a busy machine would run them
python -m benchmarks predictability burgers       how far the truth itself can be predicted
python -m benchmarks results                      the tables and figures of docs/results.md, from results/
python -m benchmarks results --add runs --commit HASH  keep the finished runs of a folder in results/ first
python -m benchmarks results --verify B           check what is kept: A, B, C, or D with --run ID
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.anywhere import MACHINES, run_anywhere
from benchmarks.crashes import POINTS, crash_all, print_counts
from benchmarks.evidence import (
    Outcome,
    collect,
    collect_studies,
    full_hash,
    verify_predictions,
    verify_training,
    verify_weights,
)
from benchmarks.evidence_page import build, outdated
from benchmarks.fuzz import fuzz
from benchmarks.growth import VARIED, measure_growth
from benchmarks.network import measure, table_lines
from benchmarks.network_data import KINDS
from benchmarks.peers import compare, paper_workloads
from benchmarks.predictability import measure_predictability
from benchmarks.sizes import PARTS, measure_sizes
from benchmarks.snapshots import measure_snapshots, print_snapshots
from benchmarks.soak import repeat_evaluation, soak
from benchmarks.solution import SOLVERS, measure_solution
from benchmarks.speed_files import SPEED, keep_speed
from benchmarks.speed_page import build_speed, solution_table, updates_table
from benchmarks.streaming import print_streaming, streaming_ratios
from benchmarks.tables import print_comparison
from benchmarks.tuning import grid, summary, tune
from benchmarks.unroll_memory import unroll_memory, unroll_memory_figure
from benchmarks.updates import measure_updates
from hero.errors import HeroError
from hero.files import write_json
from hero.report.figures.style import save
from hero.strategies import STRATEGIES


def run_peers(args: argparse.Namespace) -> None:
    """Our FNO next to neuraloperator and APEBench: updates at batch 20, rollouts of 200 steps at batch 1 and 30."""
    for dims in args.dims:
        result = compare(paper_workloads([dims]), args.rounds, args.threads, args.eager)
        print_comparison(result)
        keep_speed("peers", str(dims), result, args.out)


def run_solution(args: argparse.Namespace) -> None:
    """Seconds from the command to a trained and evaluated operator on Burgers, ours and the peers', cold and warm."""
    found = measure_solution(args.participants, args.updates, args.threads, args.out)
    print(solution_table({name: {"rows": rows} for name, rows in found.items()}))


def run_updates(args: argparse.Namespace) -> None:
    """An update of HERO and of SOAP beside one of push-forward training with AdamW, compiled."""
    found = measure_updates(args.dims, args.rounds, args.threads, args.eager, args.out)
    print(updates_table({str(dims): {"rows": rows} for dims, rows in found.items()}))


def run_sizes(args: argparse.Namespace) -> None:
    """Updates at the sizes that people train, beside neuraloperator's FNO and the authors' Transolver and U-Net."""
    measure_sizes(args.parts, args.rounds, args.threads, args.quick, args.out)


def run_growth(args: argparse.Namespace) -> None:
    """Time and memory of an update against points, width, modes, unroll, batch and processes."""
    measure_growth(args.parts, args.rounds, args.threads, args.quick, args.out)


def run_memory(args: argparse.Namespace) -> None:
    """Memory that one update keeps for its backward pass, with and without recomputation."""
    rows = unroll_memory(args.dims)
    save(unroll_memory_figure(rows), args.figure)
    if args.json:
        write_json(args.json, rows)


def run_snapshots(args: argparse.Namespace) -> None:
    """Folders of 1,000 and 10,000 states: time and memory to open, to examine, and to a first batch."""
    print_snapshots(measure_snapshots())


def run_streaming(args: argparse.Namespace) -> None:
    """Updates from a file ten times larger than data.memory next to updates with all data in memory."""
    rows = streaming_ratios(args.storage, args.rounds)
    print_streaming(args.storage, rows)
    if args.json:
        write_json(args.json, rows)


def run_crashes(args: argparse.Namespace) -> int:
    """Kill `hero train` at all named points for all strategies, and every stage at random moments, and resume."""
    return print_counts(crash_all(STRATEGIES, POINTS, args.kills, args.seed, args.cluster))


def run_fuzz(args: argparse.Namespace) -> int:
    """Random values of settings, configuration files and options; each is accepted, or refused in one sentence."""
    counts, failures = fuzz(args.values, args.files, args.options, args.seconds, args.seed)
    print(counts)
    return len(failures)


def run_soak(args: argparse.Namespace) -> int:
    """Train, kill, resume, evaluate, report, predict on all tasks and own files; memory and handles over time."""
    return soak(args.minutes, args.seed)


def run_evaluations(args: argparse.Namespace) -> None:
    """Memory and open handles over many evaluations in one process."""
    print(f"{'evaluations':>11}  {'MB':>6}  {'handles':>7}")
    for number, memory, handles in repeat_evaluation(args.count):
        print(f"{number:11}  {memory:6.1f}  {handles:7}")


def run_tuning(args: argparse.Namespace) -> None:
    """Validation errors of a grid of settings, kept as a table that a repeated call continues."""
    arms = [f"{arm} {args.common}".strip() for arm in args.arm or grid()]
    if not args.show:
        tune(args.tasks, args.updates, args.seeds, arms, args.table, args.runs, args.data, args.workers)
    print("\n".join(summary(args.table)))


def run_network(args: argparse.Namespace) -> None:
    """Validation scores of networks of several sizes on files of several kinds, kept as a table as above."""
    if not args.show:
        measure(args.kinds, args.arm, args.updates, args.seeds, args.table, args.folder)
    print("\n".join(table_lines(args.table)))


def run_tests(args: argparse.Namespace) -> None:
    """The tests under settings of other processors, with one thread and two, and on a busy machine."""
    if not run_anywhere(args.machines or list(MACHINES), args.tests):
        raise HeroError("tests failed under a setting; see the lines above.")


def run_results(args: argparse.Namespace) -> None:
    """The tables and figures of docs/results.md, made from the kept runs; or a check of what is kept."""
    if args.verify:
        failed = [show(outcome) for outcome in checks(args)].count(False)
        if failed:
            raise HeroError(f"{failed} of the checks of tier {args.verify} did not hold; see the lines above.")
        return
    if args.add:
        commit = full_hash(args.commit)
        runs, studies = collect(args.add, args.results, commit, args.machine), collect_studies(args.add, args.results)
        print(f"{runs} finished runs and {studies} studies, probes or landscapes of {args.add} are in {args.results}.")
    for path in (*build(args.results, Path()), *build_speed(args.results, Path())):
        print(path)


def checks(args: argparse.Namespace) -> Iterator[Outcome]:
    """The outcomes of a tier."""
    if args.verify == "A":
        pages = outdated(args.results, Path())
        return iter([("tables", not pages, f"other numbers in {', '.join(pages)}" if pages else "as on the pages")])
    if args.verify == "B":
        return verify_predictions(args.results)
    if args.verify == "C":
        return verify_weights(args.results, args.data)
    return verify_training(args.results, args.run, args.runs, args.data)


def show(outcome: Outcome) -> bool:
    """Print a check and return whether it held."""
    name, holds, words = outcome
    print(f"{'holds' if holds else 'FAILS'}  {name}: {words}")
    return holds


def run_predictability(args: argparse.Namespace) -> None:
    """Growth of small differences between true states of a task, kept in results/."""
    settings = {key: float(value) for key, value in (pair.split("=") for pair in args.set)}
    found = measure_predictability(args.task, settings, args.states)
    suffix = "".join(f"-{key}-{value:g}" for key, value in settings.items())
    print(found.write(args.results / "predictability" / f"{args.task}{suffix}.json"))


def at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is too few; use 1 or more")
    return int(text)


def png(text: str) -> Path:
    if not text.lower().endswith(".png"):
        raise argparse.ArgumentTypeError(f"{text} is not a PNG file; use a name that ends in .png")
    return Path(text)


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    threads = min(2, os.cpu_count() or 1)
    for name, call, rounds in (
        ("peers", run_peers, 10),
        ("solution", run_solution, None),
        ("updates", run_updates, 20),
        ("sizes", run_sizes, 2),
        ("growth", run_growth, 2),
    ):
        command = commands.add_parser(name, help=call.__doc__, description=call.__doc__)
        command.set_defaults(call=call)
        command.add_argument("--out", type=Path, default=SPEED, metavar="DIR", help=f"every number (default {SPEED})")
        command.add_argument("--threads", type=at_least_one, default=threads, help=f"cores (default {threads})")
        if rounds is not None:
            command.add_argument("--rounds", type=at_least_one, default=rounds, help=f"turns (default {rounds})")
        if name in ("peers", "updates"):
            command.add_argument("--eager", action="store_true", help="ours without torch.compile: saves minutes")
            command.add_argument("--dims", type=int, nargs="+", choices=(1, 2, 3), default=(1, 2, 3))
        if name in ("sizes", "growth"):
            parts = PARTS if name == "sizes" else (*VARIED, "processes")
            command.add_argument("--parts", nargs="+", choices=parts, default=parts, help="only these; others stay")
            command.add_argument("--quick", action="store_true", help="tiny work, to try the command")
        if name == "solution":
            command.add_argument("--updates", type=at_least_one, default=10_000, help="(default 10000)")
            command.add_argument("--participants", nargs="+", choices=SOLVERS, default=SOLVERS)
    command = commands.add_parser("memory", help=run_memory.__doc__, description=run_memory.__doc__)
    command.set_defaults(call=run_memory)
    command.add_argument("figure", type=png, metavar="PNG", help="the figure")
    command.add_argument("--json", type=Path, metavar="FILE", help="also write every number here")
    command.add_argument("--dims", type=int, choices=(1, 2, 3), default=2)
    command = commands.add_parser("snapshots", help=run_snapshots.__doc__, description=run_snapshots.__doc__)
    command.set_defaults(call=run_snapshots)

    command = commands.add_parser("streaming", help=run_streaming.__doc__, description=run_streaming.__doc__)
    command.set_defaults(call=run_streaming)
    command.add_argument("--storage", choices=("contiguous", "chunked", "gzip"), default="contiguous")
    command.add_argument("--rounds", type=at_least_one, default=8, help="turns (default 8)")
    command.add_argument("--json", type=Path, metavar="FILE", help="also write every number here")
    command = commands.add_parser("crashes", help=run_crashes.__doc__, description=run_crashes.__doc__)
    command.set_defaults(call=run_crashes)
    command.add_argument("--kills", type=int, default=50, help="at random moments (default 50)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--cluster", action="store_true", help="kill workers of Ray as well")
    command = commands.add_parser("fuzz", help=run_fuzz.__doc__, description=run_fuzz.__doc__)
    command.set_defaults(call=run_fuzz)
    for kind in ("values", "files", "options"):
        command.add_argument(f"--{kind}", type=int, default=0, help="cases of this kind (default 0)")
    command.add_argument("--seconds", type=float, default=3600, help="of processor time at most (default 3600)")
    command.add_argument("--seed", type=int, default=0)
    command = commands.add_parser("soak", help=run_soak.__doc__, description=run_soak.__doc__)
    command.set_defaults(call=run_soak)
    command.add_argument("--minutes", type=float, default=60, help="(default 60)")
    command.add_argument("--seed", type=int, default=0)
    command = commands.add_parser("evaluations", help=run_evaluations.__doc__, description=run_evaluations.__doc__)
    command.set_defaults(call=run_evaluations)
    command.add_argument("--count", type=at_least_one, default=500, help="(default 500)")
    command = commands.add_parser("tuning", help=run_tuning.__doc__, description=run_tuning.__doc__)
    command.set_defaults(call=run_tuning)
    command.add_argument("table", type=Path, metavar="CSV", help="the table")
    command.add_argument("--tasks", nargs="+", default=["burgers"], metavar="TASK")
    command.add_argument("--updates", type=at_least_one, default=4000, help="of each run (default 4000)")
    command.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N")
    command.add_argument("--arm", action="append", metavar="'A=B C=D'", help="settings of an arm (default: the grid)")
    command.add_argument(
        "--common",
        default="strategy=push_forward train.optimizer=soap",
        metavar="'A=B C=D'",
        help="settings of all arms",
    )
    command.add_argument("--workers", type=int, default=1, help="runs at a time, one thread each")
    command.add_argument("--show", action="store_true", help="train nothing; print the table that is there")
    command.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    command.add_argument("--data", type=Path, default=Path("data"), metavar="DIR")
    command = commands.add_parser("network", help=run_network.__doc__, description=run_network.__doc__)
    command.set_defaults(call=run_network)
    command.add_argument("table", type=Path, metavar="CSV", help="the table")
    command.add_argument(
        "--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND", help=", ".join(KINDS)
    )
    command.add_argument(
        "--arm", nargs="+", default=[f"backbone.size={size}" for size in ("apebench", "small", "base", "large")]
    )
    command.add_argument("--updates", type=at_least_one, default=1000, help="of each run (default 1000)")
    command.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N")
    command.add_argument("--show", action="store_true", help="train nothing; print the table that is there")
    command.add_argument("--folder", type=Path, default=Path("network"), metavar="DIR", help="data and runs")
    command = commands.add_parser(
        "predictability", help=run_predictability.__doc__, description=run_predictability.__doc__
    )
    command.set_defaults(call=run_predictability)
    command.add_argument("task", metavar="TASK")
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a coefficient of the task")
    command.add_argument("--states", type=at_least_one, default=8, help="trajectories (default 8)")
    command.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    command = commands.add_parser("anywhere", help=run_tests.__doc__, description=run_tests.__doc__)
    command.set_defaults(call=run_tests)
    command.add_argument("tests", nargs="*", metavar="TEST", help="files of tests (default: all)")
    command.add_argument(
        "--machine", dest="machines", action="append", choices=list(MACHINES), help="only this setting"
    )
    command = commands.add_parser("results", help=run_results.__doc__, description=run_results.__doc__)
    command.set_defaults(call=run_results)
    command.add_argument("--add", type=Path, metavar="RUNS", help="keep the finished runs of this folder first")
    command.add_argument(
        "--commit", default="", metavar="HASH", help="the code that trained them, a commit of this repository"
    )
    command.add_argument(
        "--machine", default="", metavar="WORDS", help="keep them as repeats, with this processor setting"
    )
    command.add_argument("--verify", choices=("A", "B", "C", "D"), help="pages, predictions, weights, or training")
    command.add_argument("--run", default="", metavar="ID", help="the run that tier D trains")
    command.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    command.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    command.add_argument("--data", type=Path, default=Path("data"), metavar="DIR")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 for failures that were found, 2 for a mistake of the user."""
    args = parser().parse_args(arguments)
    try:
        failures = args.call(args)
    except HeroError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
