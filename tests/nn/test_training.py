"""Small trainings whose figures are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn, optim

# Start weights of micrograd-cuda's test: each row is one neuron, its bias last.
WEIGHTS = [
    [
        [-0.16172434201656838, -0.14317376924337455, -0.4700094428318815, -0.767058476200416],
        [0.272122204970898, 0.29041277668795384, 0.6024714456399023, -0.10685402505540686],
        [0.0663066643553647, -0.6450813826379769, -0.6037158374935754, -0.9676578533796083],
        [0.5252188780420841, -0.18338523969443177, -0.9690354697353896, -0.7821340259173399],
    ],
    [
        [0.6999642537503801, 0.6274486078850563, 0.3802717191707845, -0.2470668164220846, -0.7907253066302833],
        [0.8009638432289721, -0.132239441620694, -0.8777651961858706, 0.19386726011983857, -0.334692253672509],
        [-0.7837682492449718, 0.04453655752213881, -0.30341863068207986, 0.38877187544984104, -0.5014343618310255],
        [-0.19083766433865468, 0.9286369283780127, 0.8535767924158131, 0.42676017551842116, 0.06249826011876958],
    ],
    [
        [0.2160294004300729, -0.0341887597780175, -0.748642567868544, -0.9801505375972142, 0.13525292052330684],
    ],
]  # fmt: skip


def with_start_weights() -> nn.MLP:
    net = nn.MLP(3, [4, 4, 1], activation=Tensor.tanh, final_activation=Tensor.tanh)
    with pg.no_grad():
        for layer, rows in zip(net.layers, WEIGHTS):
            values = np.array(rows, np.float32)
            layer.weight.copy_(Tensor(values[:, :-1]))
            layer.bias.copy_(Tensor(values[:, -1]))
    return net


@pytest.mark.req("B2")
@pytest.mark.parametrize("by_hand", [False, True])
def test_micrograd_cudas_twenty_steps(by_hand, device):
    net = with_start_weights()
    x = Tensor([[2.0, 3.0, -1.0], [3.0, -1.0, 0.5], [0.5, 1.0, 1.0], [1.0, 1.0, -1.0]])
    y = Tensor([[1.0], [-1.0], [-1.0], [1.0]])
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        loss = ((net(x) - y) ** 2).sum()
        net.zero_grad()
        loss.backward()
        if by_hand:
            with pg.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
        else:
            optimizer.step()
        losses.append(loss.item())
    assert (round(losses[0], 6), round(losses[-1], 6)) == (4.823902, 0.009)
    assert net(x)[0].item() == pytest.approx(0.9, abs=0.1)


@pytest.mark.req("B2")
def test_all_twenty_losses_equal_pytorchs(device):
    ours = with_start_weights()
    theirs = torch.nn.Sequential(
        *[part for n, m in ((3, 4), (4, 4), (4, 1)) for part in (torch.nn.Linear(n, m), torch.nn.Tanh())]
    )
    names = zip(theirs.state_dict(), ours.state_dict().values(), strict=True)
    theirs.load_state_dict({name: torch.tensor(value.detach().numpy()) for name, value in names})
    points = [[2.0, 3.0, -1.0], [3.0, -1.0, 0.5], [0.5, 1.0, 1.0], [1.0, 1.0, -1.0]]
    signs = [[1.0], [-1.0], [-1.0], [1.0]]
    mine, other = optim.SGD(ours.parameters(), lr=0.1), torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(20):
        loss = ((ours(Tensor(points)) - Tensor(signs)) ** 2).sum()
        expected = ((theirs(torch.tensor(points)) - torch.tensor(signs)) ** 2).sum()
        for optimizer, value in ((mine, loss), (other, expected)):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        # float32 functions of 1 ulp in another order; the first steps are chaotic enough to amplify it tenfold
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)


def moons(rng):
    """sklearn's make_moons(100, noise=0.1): two half circles."""
    angle = np.linspace(0, np.pi, 50)
    outer = np.stack([np.cos(angle), np.sin(angle)], 1)
    inner = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], 1)
    points = np.concatenate([outer, inner]) + rng.normal(scale=0.1, size=(100, 2))
    labels = np.concatenate([-np.ones(50), np.ones(50)])
    return points.astype(np.float32), labels.astype(np.float32)


@pytest.mark.req("A3")
def test_moons_are_separated_within_100_steps(device):
    pg.manual_seed(1)
    points, labels = moons(np.random.default_rng(1337))
    x, y = Tensor(points), Tensor(labels)
    net = nn.MLP(2, [16, 16, 1])
    assert sum(p.numel() for p in net.parameters()) == 337
    optimizer = optim.SGD(net.parameters())
    best = 0.0
    for k in range(100):
        scores = net(x)[:, 0]
        hinge = (1 - y * scores).relu().mean()
        penalty = sum((p * p).sum() for p in net.parameters())
        loss = hinge + 1e-4 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.lr = 1.0 - 0.9 * k / 100
        optimizer.step()
        best = max(best, ((scores > 0) == (y > 0)).float().mean().item())
    assert best == 1.0


@pytest.mark.req("A2")
def test_a_small_classifier_follows_pytorch(device, rng):
    theirs = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )
    ours = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    ours.load_state_dict({name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    mine, other = optim.AdamW(ours.parameters(), lr=0.01), torch.optim.AdamW(theirs.parameters(), lr=0.01)
    for _ in range(20):
        x, y = rng.standard_normal((8, 6)).astype(np.float32), rng.integers(0, 4, 8)
        loss = nn.functional.cross_entropy(ours(Tensor(x)), Tensor(y))
        expected = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        for optimizer, value in ((mine, loss), (other, expected)):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        # twenty steps of a small net amplify the last digits of float32
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
