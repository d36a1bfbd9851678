"""Downloads that go on where they broke off: in the same process, or in a later one.

The bytes so far are kept in the cache, under a name that follows from the address. The next request asks for those after
them (Range); a server that sends all from the beginning is begun again with. Whether the whole is right is for a checksum
to say: where the bytes of two versions were joined, all are fetched once more.

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
TRIES = 5  # connections in a row that bring nothing new
PAUSE_S = 0.5  # before the second of them; twice as long before each further one
CHUNK_NBYTES = 2**18  # at most so many are lost when the process is killed


def download(url: str, finish: Callable[[bytes], bytes], nbytes_max: int) -> bytes:
    """Returns the body behind an address as `finish` gives it back, checked and perhaps unpacked.

    Args:
      finish:      body -> result; an error in it is one of the body
      nbytes_max:  a larger body is an error

    Raises:
      DataError: no answer, an error status, a connection that broke off again and again, or what `finish` raises.
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
        return finish(Download(url, nbytes_max, part).body())  # what an earlier process began is another version


class Download:
    """A body on its way.

    Args:
      part:  the file that keeps the bytes so far; None: they are in memory only
    """

    def __init__(self, url: str, nbytes_max: int, part: Path | None):
        self.url, self.nbytes_max, self.part = url, nbytes_max, part
        self.data, self.expected = bytearray(), 0
        with contextlib.suppress(OSError):
            if part is not None:
                self.data += part.read_bytes()[: nbytes_max + 1]

    def body(self) -> bytes:
        """Returns all bytes, and forgets those that were kept.

        Raises:
          DataError: as `download`.
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
        """Asks for the rest, and returns whether all of it came.

        Raises:
          DataError: there is no answer, or none that fits.
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
        """Takes the bytes of an answer as they come, and returns whether all of them did."""
        file = self.opened()
        with file or contextlib.nullcontext():
            while not self.expected or len(self.data) < self.expected:
                try:
                    chunk = answer.read1(CHUNK_NBYTES)
                except (OSError, http.client.HTTPException):
                    return False
                if not chunk:
                    return not self.expected
                if file is not None and file.tell() == len(self.data):  # else another process writes it, too
                    with contextlib.suppress(OSError):
                        file.write(chunk)
                self.data += chunk
                if len(self.data) > self.nbytes_max:
                    self.forget()
                    most = f"{self.nbytes_max:,} bytes, as no file of a data set has"
                    raise DataError(f"{self.url}: answers with more than {most}")
        return True

    def opened(self) -> BinaryIO | None:
        """Returns the file that keeps the bytes, to be added to; None where there is none."""
        if self.part is None:
            return None
        try:
            self.part.parent.mkdir(parents=True, exist_ok=True)
            return self.part.open("ab", buffering=0)
        except OSError:
            return None

    def begin_again(self) -> None:
        """Gives up the bytes so far: the server sends all of them."""
        self.data.clear()
        self.forget()

    def forget(self) -> None:
        """Removes the bytes that were kept."""
        if self.part is not None:
            with contextlib.suppress(OSError):
                self.part.unlink(missing_ok=True)
                self.part.parent.rmdir()  # if no other is there
