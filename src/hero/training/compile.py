"""Whether compiling pays, and how it is done."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hero.console import console
from hero.data.windows import Batch
from hero.files import folder_of_user
from hero.method.candidates import tensors_of
from hero.runs.config import RunConfig
from hero.strategies import Compiler
from hero.training.memory import KeptForBackward
from hero.training.products import pass_for_products
from hero.training.update import Trainee, add_adapters, update

COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # the variable in which torch is told where to keep compiled code


def options_of_compiler(**more: Any) -> dict[str, Any]:
    """Options of torch's compiler on a CPU, those among them that this version has.

    By itself torch compiles six trial programs to learn which vectors g++ knows; one that knows C++20 knows all.
    Precompiled headers lie in a temporary folder that somebody else may have made, and their code is run.
    The calls between kernels, apart from these, are compiled without optimization, in two thirds of the time.
    """
    wanted = {"cpp.vec_isa_ok": True, "cpp_cache_precompile_headers": False, "aot_inductor.precompile_headers": False}
    wanted["cpp_wrapper_build_separate"] = True
    return {name: value for name, value in (wanted | more).items() if name in torch._inductor.list_options()}


@cache
def compiled(function: Callable[..., Any], device: torch.device, graphs: bool = False) -> Callable[..., Any]:
    """`function` compiled for fixed shapes; on a CPU the calls between its kernels are compiled as well.

    On CUDA `graphs` records the kernels of a call and replays them at once.
    """
    keep_compiled_code()
    if graphs and device.type == "cuda":
        return torch.compile(function, dynamic=False, mode="reduce-overhead")
    options = None
    if device.type == "cpu":
        options = options_of_compiler(cpp_wrapper=True, post_grad_custom_post_pass=pass_for_products())
    return torch.compile(function, dynamic=False, options=options)


def keep_compiled_code() -> None:
    """Have torch keep compiled code in the user's cache, apart for each kind of processor, unless it was told where.

    Its own choice is one temporary folder: a restart empties it, and code made for one processor, or for the kernels
    that a variable such as ATEN_CPU_CAPABILITY asks for, would be run on another.
    """
    told = Path(os.environ.get(COMPILED, ""))
    if told.name and not told.name.startswith("torchinductor_"):  # the name of torch's own, set once it was needed
        return
    features: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.6 has none
    kind = torch.__version__, torch.backends.cpu.get_cpu_capability(), sorted(features.items())
    name = hashlib.sha256(repr(kind).encode()).hexdigest()[:16]
    try:
        folder = folder_of_user("XDG_CACHE_HOME", ".cache") / "compiled" / name
        if shlex.quote(str(folder)) != str(folder):  # torch takes a space for the end of a name
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        is_own = found.st_uid == os.getuid() and not found.st_mode & 0o022
        if os.access(folder, os.W_OK) and is_own:  # its files are run
            os.environ[COMPILED] = str(folder)
    except (OSError, RuntimeError, AttributeError):  # no home, or not ours: torch's own choice
        return


def find_compiler(config: RunConfig, model: nn.Module, batch: Batch) -> Compiler | None:
    """`compiled` where that pays or is asked for and the machine can, else None; it reports its choice."""
    choice = config.train.compile
    if choice == "false" or (choice == "auto" and not compiling_pays(config, model, batch)):
        return None
    if not batch.truth.is_cuda and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        console.print("no C++ compiler found; training continues without it, two to three times slower", style="yellow")
        return None
    if choice == "graphs" and not batch.truth.is_cuda:
        console.print("train.compile=graphs is for CUDA; compiling without graphs", style="yellow")
    torch.compiler.reset()  # what earlier runs of this process compiled counts towards a limit
    compiler = partial(compiled, device=batch.truth.device, graphs=choice == "graphs")
    # Throw-away parts make the first update and twice the last one (HERO looks up in it what it knows), so that all is
    # compiled now and nothing in the middle of training; then the model gets its weights back.
    add_adapters(config, model)
    kept = {name: tensor.clone() for name, tensor in tensors_of(model).items()}
    note = "compiling for speed, once: about a minute, several for a deep backbone"
    if not console.is_terminal:
        console.print(note, style="dim")
    try:
        with console.status(note), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Torchinductor does not support code generation for complex")  # FFTs
            with torch.no_grad(), torch.random.fork_rng(devices=[]):  # a refiner draws
                model(batch.context.inputs())  # fills the caches of the model outside of the compiled code
            trial = Trainee.of(config, model, compiler)
            last = config.train.steps - 1
            for step in (0, last, last):
                update(trial, replace(batch, step=step))
    except Exception as error:  # whatever a compiler may raise, training can continue without it
        console.print(f"compiling failed ({type(error).__name__}); training continues without it", style="yellow")
        return None
    finally:
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, tensor in tensors_of(model).items():
                tensor.copy_(kept[name])
    return compiler


def compiling_pays(config: RunConfig, model: nn.Module, batch: Batch) -> bool:
    """Whether a run is long enough to earn back the time that compiling takes.

    Decided by counting, not by the clock, so that equal configurations take equal paths: measured on two cores, an
    uncompiled update takes about 10 ms and 5 ns for each number that it keeps for its backward pass.
    """
    if config.untrained_strategy.has_variable_length:
        return False
    if batch.truth.is_cuda:
        return config.train.steps >= 2000
    kept = KeptForBackward(model)
    with kept.hooks():
        config.make_strategy().loss(model, replace(batch, step=0))
    expected = config.train.steps * (10e-3 + 5e-9 * kept.nbytes() / 4)
    backbone = config.backbone
    return backbone.compiled_saves * expected > backbone.compile_seconds * backbone.blocks
