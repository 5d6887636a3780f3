"""Matrix products of compiled code by oneDNN, where torch's usual library leaves half of the processor unused.

torch multiplies float32 matrices by MKL, which uses vectors of 256 bits on processors of AMD that have 512; oneDNN, a
part of torch as well, takes less than half of the time there. Torch's compiler has a kernel for it that it takes for
constant weights alone; here each large product takes it, forward and backward.
"""

from __future__ import annotations

import math
from typing import Any

import torch

LARGE = 2**21
"""Multiplications of a product from which starting oneDNN, about 10 µs, costs less than it saves."""


def pass_for_products() -> Any:
    """A pass for torch's compiler on this machine, or None."""
    features: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    is_amd = str(features.get("cpu_name", "")).startswith("AMD")
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    if not (is_amd and wide and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return None
    try:
        return onednn_pass()
    except ImportError:  # torch keeps these names to itself, and another version may have others
        return None


def onednn_pass() -> Any:
    """The pass itself: in the graph of a program, large products, and those that add a vector, are replaced."""
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
    from torch._inductor.ir import TensorBox
    from torch._inductor.mkldnn_ir import LinearUnary

    def product(rows: Any, columns: Any, bias: Any) -> Any:
        return TensorBox.create(LinearUnary.create(rows, columns, bias, "none", [], ""))

    product._inductor_lowering_function = True  # type: ignore[attr-defined]
    aten = torch.ops.aten

    class Products(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            transposed: dict[Any, Any] = {}
            for node in list(graph.nodes):
                if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
                    continue
                *bias, a, b = node.args
                one, other = a.meta["val"], b.meta["val"]
                if not is_large(one, other) or any(x.meta["val"].shape != other.shape[1:] for x in bias):
                    continue
                with graph.inserting_before(node):
                    if b not in transposed:
                        turned = graph.call_function(aten.permute.default, (b, [1, 0]))
                        transposed[b] = graph.call_function(
                            aten.clone.default, (turned,), {"memory_format": torch.contiguous_format}
                        )
                        turned.meta["val"], transposed[b].meta["val"] = other.t(), other.t().contiguous()
                    replaced = graph.call_function(product, (a, transposed[b], *(bias or [None])))
                replaced.meta.update(node.meta)
                node.replace_all_uses_with(replaced)
                graph.erase_node(node)

        def uuid(self) -> Any:
            return get_hash_for_files((__file__,))

    return Products()


def is_large(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the rows of `one` are many numbers that lie one after the other, all on a CPU and of float32."""
    fits = one.dtype == other.dtype == torch.float32 and one.device.type == "cpu" and one.is_contiguous()
    return fits and len(one) >= 4 * one.shape[1] and math.prod(one.shape) * other.shape[1] >= LARGE
