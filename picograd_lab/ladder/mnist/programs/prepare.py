"""Writes the file that every rung reads: sizes, initial weights, images and labels.

    python prepare.py small            # mnist_small.bin: 784-256-10, batches of 8
    python prepare.py large            # mnist_large.bin: 784-1024-10, batches of 32
    python prepare.py small few.bin 256 100

The last command: to another file, with 256 training and 100 test images. The file, in this machine's byte order:

    int32     inputs, hidden, outputs, batch, training images, test images
    float32   w1 (inputs, hidden), b1 (hidden), w2 (hidden, outputs), b2 (outputs)
    float32   the images (number, inputs), training images first: (x - 0.1307) / 0.3081 of x in [0, 1]
    int32     the labels, in the same order
"""

import sys

import numpy as np

from picograd.data import load_mnist

INPUTS, OUTPUTS = 784, 10
SIZES = {"small": (256, 8), "large": (1024, 32)}  # hidden, batch
NUM_TRAIN, NUM_TEST = 10_000, 10_000
MEAN, DEVIATION = np.float32(0.1307), np.float32(0.3081)


def weights(rng, fan_in, fan_out):
    limit = np.sqrt(2 / fan_in)
    return rng.uniform(-limit, limit, (fan_in, fan_out)).astype(np.float32)


def prepare(name, path, num_train=NUM_TRAIN, num_test=NUM_TEST):
    hidden, batch = SIZES[name]
    mnist, rng = load_mnist(), np.random.default_rng(0)
    images = np.concatenate([mnist.train_images[:num_train], mnist.test_images[:num_test]])
    labels = np.concatenate([mnist.train_labels[:num_train], mnist.test_labels[:num_test]])
    parts = [
        np.array([INPUTS, hidden, OUTPUTS, batch, num_train, num_test], np.int32),
        weights(rng, INPUTS, hidden), np.zeros(hidden, np.float32),
        weights(rng, hidden, OUTPUTS), np.zeros(OUTPUTS, np.float32),
        (images.reshape(-1, INPUTS).astype(np.float32) / np.float32(255) - MEAN) / DEVIATION,
        labels.astype(np.int32),
    ]  # fmt: skip
    with open(path, "wb") as file:
        for part in parts:
            part.tofile(file)


if __name__ == "__main__":
    size = sys.argv[1] if len(sys.argv) > 1 else "small"
    prepare(size, sys.argv[2] if len(sys.argv) > 2 else f"mnist_{size}.bin", *map(int, sys.argv[3:]))
