"""A policy that learns to balance a pole on a cart: each episode is as long as the pole stands.

    python -m examples.reinforce [--jit]

Source: Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning";
the cart: Barto, Sutton, Anderson 1983.
"""

import math
import random
import sys

import picograd as torch  # import torch: the same program on PyTorch

nn, F = torch.nn, torch.nn.functional


class CartPole:
    """A pole on a cart that is pushed to the left (0) or to the right (1) fifty times a second."""

    def __init__(self, seed=0, longest=200):
        self.rng, self.longest = random.Random(seed), longest

    def reset(self):
        self.count, self.state = 0, [self.rng.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action):
        x, speed, angle, turn = self.state
        force, gravity, mass, pole_mass, half = (10.0 if action else -10.0), 9.8, 1.1, 0.1, 0.5
        push = (force + pole_mass * half * turn**2 * math.sin(angle)) / mass
        pull = gravity * math.sin(angle) - math.cos(angle) * push
        turning = pull / (half * (4 / 3 - pole_mass * math.cos(angle) ** 2 / mass))
        speeding = push - pole_mass * half * turning * math.cos(angle) / mass
        self.state = [x + 0.02 * speed, speed + 0.02 * speeding, angle + 0.02 * turn, turn + 0.02 * turning]
        self.count += 1
        over = abs(self.state[0]) > 2.4 or abs(self.state[2]) > math.radians(12) or self.count == self.longest
        return self.state, 1.0, over


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))


def train(model, jit=False, num_epochs=5, num_episodes=10, longest=200):
    """Yields the epoch and the loss of each episode."""
    pole = CartPole(longest=longest)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def act(state):  # (1, 4)
        probabilities = F.softmax(model(state), dim=1)
        return torch.multinomial(probabilities, 1)

    def step(states, actions, returns):  # (T, 4), (T,), (T,)
        advantages = (returns - returns.mean()) / (returns.std() + 1e-6)
        log_probabilities = F.log_softmax(model(states), dim=1)
        taken = log_probabilities[torch.arange(len(actions)), actions]
        loss = -(taken * advantages).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    if jit:
        act, step = torch.jit(act), torch.jit(step)
    for epoch in range(num_epochs):
        lengths = []
        for _ in range(num_episodes):
            states, actions, rewards, state, over = [], [], [], pole.reset(), False
            while not over:
                with torch.no_grad():
                    action = act(torch.tensor([state])).item()
                states.append(state)
                actions.append(action)
                state, reward, over = pole.step(action)
                rewards.append(reward)
            returns, total = [], 0.0
            for reward in reversed(rewards):
                total = reward + 0.99 * total
                returns.insert(0, total)
            loss = step(torch.tensor(states), torch.tensor(actions), torch.tensor(returns))
            lengths.append(len(rewards))
            yield epoch, loss.item()
        print(f"epoch {epoch}: {sum(lengths) / len(lengths):.0f} steps an episode")


def main(jit=False):
    return [loss for _, loss in train(make(), jit, num_epochs=20)]


if __name__ == "__main__":
    main("--jit" in sys.argv)
