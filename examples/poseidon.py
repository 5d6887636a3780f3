"""Poseidon (Herde et al. 2024) as a backbone: a state and a lead time in, an object with the next state out.

With the authors' package `scOT`, whose lead times are shares of a trajectory (1 is its end), training along rollouts is

    net = ScOT.from_pretrained("camlab-ethz/Poseidon-T")
    hero.train(data, model=Poseidon(net, time=1 / 20))
"""

from torch import Tensor, nn


class Poseidon(nn.Module):
    """The state one step of `time` later."""

    def __init__(self, net: nn.Module, time: float) -> None:
        super().__init__()
        self.net, self.time = net, time

    def forward(self, u: Tensor) -> Tensor:  # (batch, channel, x, y)
        time = u.new_full((u.shape[0],), self.time)
        return self.net(pixel_values=u, time=time).output
