"""Downloads that resume after a broken connection, in the same process or in a later one.

The bytes so far are kept in the cache, under a name that depends on the address. The next request asks for the rest
(Range); if the server sends the whole file, the download restarts. A checksum decides on the result: if the parts belong to
two versions, everything is fetched once more.

Source: RFC 9110, section 14 (ranges).
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from picograd.config import cache_folder
from picograd.errors import DataError

CONNECT_TIMEOUT_S = 20
TRIES = 5  # consecutive connections without new bytes
PAUSE_S = 0.5  # before the second connection; doubled before each further one
CHUNK_NBYTES = 2**18  # largest loss if the process is killed


def download(url: str, finish: Callable[[bytes], bytes], nbytes_max: int) -> bytes:
    """Returns `finish(body)` for the body at an address; `finish` checks and perhaps unpacks it.

    Args:
      finish:      body -> result; its errors are errors of the body
      nbytes_max:  largest body

    Raises:
      DataError: there is no response, an error status, too many broken connections, or an error of `finish`.
    """
    cache = cache_folder()
    part = None if cache is None else cache / "data" / "unfinished" / hashlib.sha256(url.encode()).hexdigest()[:24]
    is_old = part is not None and part.is_file()
    body = Download(url, nbytes_max, part).body()
    try:
        return finish(body)
    except DataError:
        if not is_old:
            raise
        return finish(Download(url, nbytes_max, part).body())  # the kept part belongs to another version


class Download:
    """A body in progress.

    Args:
      part:  the file of the bytes so far; None: they are in memory only
    """

    def __init__(self, url: str, nbytes_max: int, part: Path | None):
        self.url, self.nbytes_max, self.part = url, nbytes_max, part
        self.data, self.expected = bytearray(), 0
        with contextlib.suppress(OSError):
            if part is not None:
                self.data += part.read_bytes()[: nbytes_max + 1]

    def body(self) -> bytes:
        """Downloads all bytes, and removes the kept part.

        Raises:
          DataError: as in `download`.
        """
        failed, most = 0, len(self.data)
        while not self.goes_on():
            failed = 0 if len(self.data) > most else failed + 1
            most = max(most, len(self.data))
            if failed == TRIES:
                got, expected = len(self.data), f"{self.expected:,}" if self.expected else "more"
                raise DataError(f"{self.url}: the connection broke off after {got:,} of {expected} bytes")
            time.sleep(PAUSE_S * 2 ** max(0, failed - 1))
        self.forget()
        return bytes(self.data)

    def goes_on(self) -> bool:
        """Requests the rest, and returns whether all of it arrived.

        Raises:
          DataError: there is no response, or an invalid one.
        """
        asked = {"Range": f"bytes={len(self.data)}-"} if self.data else {}
        try:
            answer = urllib.request.urlopen(urllib.request.Request(self.url, headers=asked), timeout=CONNECT_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and self.data:
                self.begin_again()
                return self.goes_on()
            raise DataError(f"{self.url}: {error.reason}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DataError(f"{self.url}: {getattr(error, 'reason', None) or error}") from None
        with answer:
            if asked and not str(answer.headers.get("Content-Range", "")).startswith(f"bytes {len(self.data)}-"):
                self.begin_again()
            if self.data and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                raise DataError(f"{self.url}: answers {answer.status} where some of its bytes were asked for")
            self.expected = 0 if answer.length is None else len(self.data) + answer.length
            return self.takes(answer)

    def takes(self, answer: Any) -> bool:
        """Reads the bytes of a response, and returns whether all arrived."""
        file = self.opened()
        with file or contextlib.nullcontext():
            while not self.expected or len(self.data) < self.expected:
                try:
                    chunk = answer.read1(CHUNK_NBYTES)
                except (OSError, http.client.HTTPException):
                    return False
                if not chunk:
                    return not self.expected
                if file is not None and file.tell() == len(self.data):  # otherwise another process writes it, too
                    with contextlib.suppress(OSError):
                        file.write(chunk)
                self.data += chunk
                if len(self.data) > self.nbytes_max:
                    self.forget()
                    most = f"{self.nbytes_max:,} bytes, as no file of a data set has"
                    raise DataError(f"{self.url}: answers with more than {most}")
        return True

    def opened(self) -> BinaryIO | None:
        """Opens the file of the kept bytes for appending; None without one."""
        if self.part is None:
            return None
        try:
            self.part.parent.mkdir(parents=True, exist_ok=True)
            return self.part.open("ab", buffering=0)
        except OSError:
            return None

    def begin_again(self) -> None:
        """Discards the bytes so far, since the server sends the whole file."""
        self.data.clear()
        self.forget()

    def forget(self) -> None:
        """Removes the kept bytes."""
        if self.part is not None:
            with contextlib.suppress(OSError):
                self.part.unlink(missing_ok=True)
                self.part.parent.rmdir()  # if it is empty
