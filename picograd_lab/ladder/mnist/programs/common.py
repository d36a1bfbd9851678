"""Shared parts of all rungs in Python: the command, the problem's file, timers and the report; common.h is the same in C.

    python mlp_numpy.py [mnist_small.bin [epochs [steps [dump]]]]

steps: number of first steps with printed losses; with 0 epochs, stop after them, and
report no accuracy. dump: a file for these steps' tensors.
"""

import sys
import zlib
from pathlib import Path
from time import perf_counter

import numpy as np

PHASES = ("load", "copy", "forward", "loss", "backward", "update", "step")  # step: several phases together
LEARNING_RATE = 0.01


class Problem:
    """The file and the command."""

    def __init__(self):
        path, epochs, steps, dump = [*sys.argv[1:], *["mnist_small.bin", "10", "0", ""][len(sys.argv) - 1 :]]
        self.epochs, self.steps = int(epochs), int(steps)
        with open(path, "rb") as file:
            inputs, hidden, outputs, self.batch, num_train, num_test = np.fromfile(file, np.int32, 6).tolist()
            shapes = ((inputs, hidden), (hidden,), (hidden, outputs), (outputs,))
            self.weights = [np.fromfile(file, np.float32, int(np.prod(shape))).reshape(shape) for shape in shapes]
            images = np.fromfile(file, np.float32, (num_train + num_test) * inputs).reshape(-1, inputs)
            labels = np.fromfile(file, np.int32, num_train + num_test)
        self.images, self.test_images = images[:num_train], images[num_train:]
        self.labels, self.test_labels = labels[:num_train], labels[num_train:]
        self.dump_path = Path(dump) if dump else None
        if self.dump_path:
            self.dump_path.write_bytes(b"")
        self.step = 0

    @property
    def is_shown(self):
        """True for the first steps, whose losses are printed and tensors dumped."""
        return self.step < self.steps

    def batches(self):
        """Yields the slice of rows of each full batch, in order."""
        for number in range(len(self.images) // self.batch):
            if not self.epochs and not self.is_shown:
                return
            yield slice(number * self.batch, (number + 1) * self.batch)
            self.step += 1

    def dump(self, name, kernel, tensor):
        """Writes a tensor of this step to the dump, if there is one: "step name kernel rows columns", then float32."""
        if self.dump_path and self.is_shown:
            array = np.atleast_2d(np.asarray(tensor, np.float32))
            with self.dump_path.open("ab") as file:
                file.write(f"{self.step} {name} {kernel} {array.shape[0]} {array.shape[1]}\n".encode())
                file.write(array.tobytes())


class Timer:
    """Seconds of each phase; a phase lasts from the previous tick to its own."""

    def __init__(self):
        self.spent = dict.fromkeys(PHASES, 0.0)
        self.last = perf_counter()

    def skip(self):
        """Excludes the time since the last tick from all phases."""
        self.last = perf_counter()

    def tick(self, phase):
        now = perf_counter()
        self.spent[phase] += now - self.last
        self.last = now


def report(problem, timer, weights, test_logits):
    """Prints the training's report; `weights` and `test_logits` are NumPy's."""
    if problem.epochs:
        print(f"test accuracy {100 * np.mean(test_logits.argmax(1) == problem.test_labels):.2f} %")
    print(f"weights {zlib.crc32(b''.join(np.ascontiguousarray(each).tobytes() for each in weights)):08x}")
    print("seconds", *(f"{phase} {seconds:.6f}" for phase, seconds in timer.spent.items()))
