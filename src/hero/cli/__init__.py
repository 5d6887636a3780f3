"""The `hero` command: parse, call, print. Everything it does is one import away in Python.

A command is a function whose signature is its options, listed in `COMMANDS` of its module. Modules that load torch are
imported inside the functions, so help and completion are immediate. A function returns its exit code unless it is 0.
"""

import atexit
import gc
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version as installed_version
from io import TextIOWrapper
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hero.cli import plan, runs, train, use
from hero.cli.options import flat
from hero.config.registry import command_line
from hero.errors import DISTRIBUTION, OUT_OF_MEMORY, HeroError, is_out_of_memory, unknown_name, visible
from hero.ranks import RANKS

SHARED = ("train", "finetune")  # commands that torchrun may start
EXAMPLES = """\
Examples:
  hero train burgers                           FNO with what we recommend
  hero train burgers --strategy hero           FNO with HERO, as in the paper
  hero train --resume RUN                      continue an interrupted run
  hero finetune RUN --unroll 1:500,5:1500      train it on along its rollouts
  hero compare burgers --seeds 5               table and figure of strategies
  hero export RUN                              ONNX and torch.export files
  hero predict RUN --from flow.h5 --out u.h5   roll out your own states
"""

AS_TYPED = SimpleNamespace(coerce=lambda value, **_: value)
"""Replaces the conversion of values by pydantic during completion, which only needs their names."""


class Quick:
    """A command whose flags are shown without a type, and which loads pydantic only to run."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar, param.default = "", param.default or False
            if ctx.resilient_parsing:
                param.get_runtime_param = lambda: AS_TYPED
        return params


class Command(Quick, TyperCommand):
    """One command."""


class Commands(Quick, TyperGroup):
    """A group of commands, which answers an unknown name with the nearest one, and no name with its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_lost = not args and not self.invoke_without_command and not ctx.resilient_parsing
        return super().parse_args(ctx, ["--help"] if is_lost else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"hero {installed_version(DISTRIBUTION)}")
        raise typer.Exit


def hero(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train neural operators whose autoregressive rollouts stay accurate for hundreds of steps, and measure it."""
    if RANKS.count > 1 and ctx.invoked_subcommand not in SHARED:
        raise HeroError(
            f"`hero {ctx.invoked_subcommand}` is not a training, which the processes of torchrun could share; leave "
            "torchrun out."
        )
    for name in os.environ.get("HERO_IMPORT", "").replace(",", " ").split():  # modules that register parts of the user
        from hero.config.registry import user_module

        user_module(name, f"the module {name} of $HERO_IMPORT")


def make_app() -> typer.Typer:
    """All commands, in groups."""
    top = typer.Typer(cls=Commands, callback=hero, epilog=EXAMPLES, pretty_exceptions_enable=False)
    for panel, commands in (group for module in (train, use, runs, plan) for group in module.COMMANDS.items()):
        for function in commands:
            top.command(function.__name__, cls=Command, rich_help_panel=panel)(flat(function))
    data = typer.Typer(cls=Commands, help="List, make or show the benchmark data.")
    listed = typer.Typer(cls=Commands, callback=flat(runs.list_runs), invoke_without_command=True)
    for group, actions in ((data, plan.ACTIONS), (listed, runs.ACTIONS)):
        for name, function in actions.items():
            group.command(name, cls=Command)(flat(function))
    top.add_typer(listed, name="runs", rich_help_panel="Look at runs")
    top.add_typer(data, name="data", rich_help_panel="Before training")
    return top


app = make_app()
atexit.register(gc.freeze)  # else the process spends seconds at its end on looking through torch's compiler for garbage


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 1 if runs failed, 2 for a mistake of the user, 130 after Ctrl-C."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without × gets ?, not a traceback after the work
    try:
        with command_line():
            code = app(arguments, prog_name="hero", standalone_mode=False) or 0
    except HeroError as error:
        return fail(with_dashes(str(error)))
    except typer.TyperException as error:
        return fail(usage_sentence(error))
    except UnicodeEncodeError:
        return fail("a name that is not UTF-8 cannot be stored; rename the file or the folder.")
    except OSError as error:
        name, reason = error.filename or "a file", error.strerror or error
        return fail(f"cannot use {name} ({reason}); check the path, its permissions and the space.")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return fail(OUT_OF_MEMORY)
    if code == 130:  # how Typer reports Ctrl-C
        fail("interrupted; progress is saved, run the same command to resume.")
    return int(code)


def with_dashes(sentence: str) -> str:
    """An error of the library, which names arguments in backticks, with options in their place where they exist."""
    known = set(options_of(typer.main.get_command(app)))

    def spelled(found: re.Match[str]) -> str:
        option = "--" + found[1].replace("_", "-")
        return option if option in known else found[0]

    return re.sub(r"`([a-z_]+)`", spelled, sentence)


def options_of(command: Any) -> Iterator[str]:
    yield from (name for param in command.params for name in param.opts)
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


def fail(sentence: str) -> int:
    """Print the sentence and return the exit code of a mistake; one of the processes of a run prints for all."""
    if RANKS.count > 1:
        from hero.parallel import is_first_to_tell

        if not is_first_to_tell():
            return 2
    print(f"hero: {visible(sentence)}", file=sys.stderr)
    return 2


def usage_sentence(error: Any) -> str:
    """A usage error of Typer as one sentence."""
    if hasattr(error, "possibilities") and error.ctx is not None:  # NoSuchOption
        known = [name for param in error.ctx.command.get_params(error.ctx) for name in param.opts if name[0] == "-"]
        return str(unknown_name("option", error.option_name, known))
    message = " ".join(error.format_message().split()).rstrip(".")
    path = error.ctx.command_path if error.ctx else "hero"
    return f"{message[0].lower()}{message[1:]}; see `{path} --help`."
