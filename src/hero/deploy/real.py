"""A traced program without complex numbers, which ONNX does not have: an FNO of anybody's, with torch.fft inside.

The program is run once more, with every complex tensor as a real one that has a last axis of two, and traced again.
Transforms become products with matrices of cosines and sines. Whatever the rules below do not know is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_any, tree_map_only

aten = torch.ops.aten


@dataclass(frozen=True)
class Complex:
    """A complex tensor as (*shape, 2)."""

    parts: Tensor

    @property
    def dims(self) -> int:
        return self.parts.dim() - 1


def is_complex(node: Node) -> bool:
    """Whether a step of a graph makes a complex tensor."""
    made = node.meta.get("val")
    return isinstance(made, Tensor) and made.is_complex()


def has_free_batch(program: ExportedProgram) -> bool:
    """Whether the first axis of the inputs may have any length."""
    own = program.graph_signature.user_inputs
    return any(not isinstance(node.meta["val"].shape[0], int) for node in program.graph.nodes if node.name in own)


def without_paths(program: ExportedProgram) -> ExportedProgram:
    """The program without the stack traces of its nodes, which name folders of this machine."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)
    return program


def in_real_numbers(program: ExportedProgram) -> ExportedProgram:
    """An equal program without complex tensors; `program` itself where there are none."""
    if not any(map(is_complex, program.graph.nodes)):
        return program
    inputs, _ = program.example_inputs or ((), {})
    free = {0: Dim("batch")} if has_free_batch(program) else {}
    module = RealModule(program.run_decompositions().module())
    module(*inputs)  # makes the matrices outside of the trace, in which they would be computed anew by every call
    return without_paths(
        torch.export.export(module, inputs, dynamic_shapes=(tuple(free for _ in inputs),), strict=False)
    )


class RealModule(nn.Module):
    """Runs a graph with its complex weights as real ones."""

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.complex_weights = set()
        for name, weight in [*graph.named_parameters(), *graph.named_buffers()]:
            if weight.is_complex():
                owner, _, last = name.rpartition(".")
                part = graph.get_submodule(owner)
                delattr(part, last)
                part.register_buffer(last, torch.view_as_real(weight.detach().resolve_conj()).contiguous())
                self.complex_weights.add(name)
        self.traced: GraphModule = graph

    def forward(self, *inputs: Tensor) -> Any:
        return RealInterpreter(self).run(*inputs)


class RealInterpreter(Interpreter):
    """Runs each step of a graph by a rule for complex tensors where it reads or makes one."""

    def __init__(self, module: RealModule) -> None:
        super().__init__(module.traced)
        self.complex_weights = module.complex_weights

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        found = super().get_attr(target, args, kwargs)
        return Complex(found) if target in self.complex_weights else found

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        reads = tree_any(lambda x: isinstance(x, Complex), (args, kwargs))
        if n.op != "call_function" or not (reads or is_complex(n)):
            return super().run_node(n)
        rule = RULES.get(n.target)
        if rule is not None:
            return rule(*args, **kwargs)
        if n.target not in REARRANGING:
            raise ValueError(f"{n.target} of complex numbers")
        return Complex(rearranged(n.target, args, kwargs))


def rearranged(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """A step that only moves numbers, with the last axis left where it is."""
    names = [argument.name for argument in target._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    dims = max((x.dims for x in torch.utils._pytree.tree_leaves(given) if isinstance(x, Complex)), default=0)
    for name, value in given.items():
        if name == "dim":
            given[name] = value % (dims + 1 if target is aten.unsqueeze.default else dims)
        elif name == "dims":
            given[name] = [*(axis % dims for axis in value), dims]
        elif name == "size":
            given[name] = [*value, 2]
        elif name == "pad":
            given[name] = [0, 0, *value]
    made: Tensor = target(**tree_map_only(Complex, lambda x: x.parts, given))
    return made


REARRANGING = {
    *(aten.unsqueeze.default, aten.squeeze.dim, aten.permute.default, aten.view.default, aten.reshape.default),
    *(aten.expand.default, aten.slice.Tensor, aten.slice_scatter.default, aten.select.int, aten.select_scatter.default),
    *(aten.index_select.default, aten.cat.default, aten.constant_pad_nd.default, aten.clone.default),
    *(aten.alias.default, aten._unsafe_view.default),
}


@cache
def waves(points: int, kept: int, normalization: int, both: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos φ and sin φ with φ = 2π x k / N, (points, kept), scaled; `both`: waves count for their conjugates too."""
    phase = 2 * math.pi / points * torch.outer(*(torch.arange(n, dtype=torch.float64) for n in (points, kept)))
    k = torch.arange(kept)
    count = torch.where((k == 0) | (2 * k == points), 1.0, 2.0) if both else 1.0
    factor = count * (1.0, points**-0.5, 1 / points)[normalization]  # as torch counts them
    return (factor * torch.cos(phase)).to(dtype), (factor * torch.sin(phase)).to(dtype)


def from_real(x: Tensor, dim: list[int], normalization: int, onesided: bool) -> Complex:
    *others, last = (axis % x.dim() for axis in dim)
    points = x.shape[last]
    cos, sin = waves(points, points // 2 + 1 if onesided else points, normalization, False, x.dtype)
    x = x.movedim(last, -1)
    parts = torch.stack([(x @ cos).movedim(-1, last), -(x @ sin).movedim(-1, last)], dim=-1)
    return between_complex(Complex(parts), others, normalization, True)


def between_complex(z: Complex, dim: list[int], normalization: int, forward: bool) -> Complex:
    parts = z.parts
    for axis in (axis % z.dims for axis in dim):
        points = parts.shape[axis]
        cos, sin = waves(points, points, normalization, False, parts.dtype)
        re, im = parts.movedim(axis, -2).unbind(-1)
        sin = sin if forward else -sin  # (a + ib)(cos - i sin)
        parts = torch.stack([re @ cos + im @ sin, im @ cos - re @ sin], dim=-1).movedim(-2, axis)
    return Complex(parts)


def to_real(z: Complex, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    *others, last = (axis % z.dims for axis in dim)
    parts = between_complex(z, others, normalization, False).parts.movedim(last, -2)
    cos, sin = waves(last_dim_size, parts.shape[-2], normalization, True, parts.dtype)
    re, im = parts.unbind(-1)
    return (re @ cos.T - im @ sin.T).movedim(-1, last)


def product(function: Any) -> Any:
    """A rule for a product, of two complex tensors or of one with real numbers."""

    def rule(a: Any, b: Any) -> Complex:
        if not isinstance(a, Complex):
            a, b = b, a
        if not isinstance(a, Complex) or isinstance(b, complex):
            raise ValueError("a complex constant")
        re, im = a.parts.unbind(-1)
        if not isinstance(b, Complex):
            return Complex(torch.stack([function(re, b), function(im, b)], dim=-1))
        other_re, other_im = b.parts.unbind(-1)
        made = function(re, other_re) - function(im, other_im), function(re, other_im) + function(im, other_re)
        return Complex(torch.stack(made, dim=-1))

    return rule


def filled(size: list[int], value: Any = 0, **_: Any) -> Complex:
    if value != 0:
        raise ValueError("a complex constant")
    return Complex(torch.zeros(*size, 2))


RULES: dict[Any, Any] = {
    aten._fft_r2c.default: from_real,
    aten._fft_c2c.default: between_complex,
    aten._fft_c2r.default: to_real,
    aten.full.default: filled,
    aten.copy.default: lambda into, source: Complex(source.parts.expand_as(into.parts)),
    aten.view_as_real.default: lambda z: z.parts,
    aten.view_as_complex.default: Complex,
    aten.mul.Tensor: product(torch.mul),
    aten.bmm.default: product(torch.bmm),
    aten.add.Tensor: lambda a, b: Complex(a.parts + b.parts),
}
