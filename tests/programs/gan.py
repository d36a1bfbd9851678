"""Two nets against each other, each with an optimizer of its own, and weights drawn by the kind of layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.program import Program


def gan(torch: Any, nn: Any, F: Any) -> Program:  # noqa: N803
    def draw(module):
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(module.weight, 0.0, 0.05)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.05)
            nn.init.constant_(module.bias, 0)

    painter = nn.Sequential(
        nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    critic = nn.Sequential(
        nn.utils.spectral_norm(nn.Conv2d(1, 4, 4, 2, 1)),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4, 1, 4, 1, 0, bias=False),
        nn.Flatten(0),
    )
    for net in (painter, critic):
        net.apply(draw)
    optimizers = [torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.5, 0.999)) for net in (painter, critic)]
    of_painter, of_critic = optimizers

    def step(real, noise):
        painted = painter(noise)
        critic.zero_grad()
        on_real, on_painted = critic(real), critic(painted.detach())
        yes, no = torch.ones_like(on_real), torch.full_like(on_painted, 0.1)
        loss = F.binary_cross_entropy_with_logits(on_real, yes) + F.binary_cross_entropy_with_logits(on_painted, no)
        loss.backward()
        of_critic.step()
        painter.zero_grad(set_to_none=True)
        wish = F.softplus(-critic(painted)).mean()
        wish.backward()
        of_painter.step()
        return loss.item(), wish.item()

    rng = np.random.default_rng(0)
    shapes = ((3, 1, 8, 8), (3, 6, 1, 1))
    data = [tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes) for _ in range(3)]
    return nn.ModuleDict({"painter": painter, "critic": critic}), step, data
