"""DPOT (Hao et al. 2024) as a backbone: ten states in, the next one out.

Its network takes (batch, x, y, time, channel) and returns the next state, (batch, x, y, 1, channel), with logits of the
dataset. With the authors' repository and weights in the folder, training along rollouts is

    net = DPOTNet(img_size=128, patch_size=8, in_channels=4, in_timesteps=10, out_channels=4, out_timesteps=1)
    net.load_state_dict(torch.load("model_Ti.pth", weights_only=True)["model"])
    hero.train(data, model=DPOT(net), settings={"train.history": 10})
"""

from torch import Tensor, nn


class DPOT(nn.Module):
    """Ten states in channels, as hero gives them, to the next state."""

    def __init__(self, net: nn.Module, states: int = 10) -> None:
        super().__init__()
        self.net, self.states = net, states

    def forward(self, x: Tensor) -> Tensor:  # (batch, states * channel, x, y)
        out, _ = self.net(x.unflatten(1, (self.states, -1)).permute(0, 3, 4, 1, 2))
        return out[..., -1, :].movedim(-1, 1)  # (batch, channel, x, y)
