"""Networks that people use, from packages that carry them, beside ONNX Runtime: speech activity and text recognition."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pytest

import picograd as pg
import picograd.onnx
from picograd.errors import DataError
from picograd_programs.data.fetch import Carrier, DataFile, get_files

Feeds = Mapping[str, np.ndarray]
STATE = np.zeros((2, 1, 128), np.float32)


class Network(NamedTuple):
    """A file of a package, its digest, and inputs."""

    package: str
    path: str
    sha256: str
    feeds: Callable[[np.random.Generator], list[Feeds]]


def images(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[Feeds]]:
    return lambda rng: [{"x": rng.uniform(-1, 1, shape).astype(np.float32)} for shape in shapes]


def sound(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (0.1 * rng.standard_normal(shape)).astype(np.float32)


SILERO, RAPIDOCR = "silero-vad==6.2.3", "rapidocr-onnxruntime==1.4.4"
NETWORKS = {
    "silero": Network(
        SILERO, "silero_vad/data/silero_vad.onnx", "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        lambda rng: [
            {"input": sound(rng, 1, samples), "state": STATE, "sr": np.array(rate)}
            for samples, rate in ((576, 16000), (288, 8000))
        ],
    ),
    "silero, a sequence": Network(
        SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        lambda rng: [{"input": sound(rng, length, 576), "h": STATE[:1], "c": STATE[:1]} for length in (1, 7)],
    ),
    "direction of text": Network(
        RAPIDOCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c", images((2, 3, 48, 192)),
    ),
    "text": Network(
        RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b", images((1, 3, 48, 160), (2, 3, 48, 96)),
    ),
    "places of text": Network(
        RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9", images((1, 3, 96, 128)),
    ),
}  # fmt: skip


def published(network: Network) -> bytes:
    """Returns the network's file, or skips the test where no source has the package."""

    def unpack(wheel: zipfile.ZipFile) -> Mapping[str, bytes]:
        return {name: wheel.read(network.path)}

    name = network.path.rpartition("/")[2]
    try:
        return get_files("onnx", [DataFile(name, network.sha256, ())], Carrier(network.package, unpack))[name]
    except DataError as error:
        pytest.skip(f"{network.package} is not here: {error.fact.splitlines()[-1]}")


@pytest.mark.variants(every=4)
@pytest.mark.req("C10")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_published_network_gives_what_onnx_runtime_gives(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    data = published(NETWORKS[name])
    theirs = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours = picograd.onnx.load(data)
    for feeds in NETWORKS[name].feeds(rng):
        expected = theirs.run(None, dict(feeds))
        with pg.no_grad():
            found = ours(**feeds)
        for a, b in zip(found if isinstance(found, (tuple, list)) else [found], expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.req("C10")
def test_speech_is_followed_from_chunk_to_chunk(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tone that begins in the middle of noise, a chunk of 32 ms at a time; the state goes from call to call."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    data = published(NETWORKS["silero"])
    theirs, ours = runtime.InferenceSession(data, providers=["CPUExecutionProvider"]), picograd.onnx.load(data)
    wave = sound(rng, 12 * 512 + 64)
    wave[3000:] += 0.3 * np.sin(np.arange(len(wave) - 3000) * 0.09).astype(np.float32)
    states = [STATE, STATE]
    for start in range(0, 12 * 512, 512):
        chunk, rate = wave[None, start : start + 576], np.array(16000)
        expected, states[0] = theirs.run(None, {"input": chunk, "state": states[0], "sr": rate})
        with pg.no_grad():
            found, state = ours(input=chunk, state=states[1], sr=rate)
        states[1] = state.numpy()
        assert found.item() == pytest.approx(expected.item(), abs=1e-4)
