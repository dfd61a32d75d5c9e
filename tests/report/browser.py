"""Opens pages in headless Chromium, with nothing allowed to leave this computer."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path")

_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@dataclass(frozen=True)
class Visit:
    """What a page looked like once loaded: its document, and what its console said."""

    dom: str
    console: str


def _chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    with TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        return subprocess.run(
            [CHROMIUM, *_QUIET, f"--user-data-dir={profile}", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )


def visit(url: str, width: int = 1280, height: int = 900) -> Visit:
    """Load a page and return its document as the browser sees it after loading."""
    done = _chromium("--dump-dom", f"--window-size={width},{height}", url)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Visit(done.stdout, "\n".join(console))


def screenshot(url: str, to: Path, width: int, height: int, dark: bool = False) -> None:
    """Save a picture of the page at one window size, in light or dark colours."""
    scheme = "--blink-settings=preferredColorScheme=" + ("0" if dark else "1")
    _chromium(scheme, f"--screenshot={to}", f"--window-size={width},{height}", url)


@dataclass
class Site:
    """A page served on this computer, with every request anyone made for anything."""

    url: str
    requests: list[str] = field(default_factory=list)


@contextmanager
def served(pages: dict[str, str], policy: str | None = None) -> Iterator[Site]:
    """Serve pages by path under an optional Content-Security-Policy, recording all requests."""
    site = Site("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append(self.path)
            body = pages.get(self.path, "").encode()
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            if policy is not None:
                self.send_header("Content-Security-Policy", policy)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_HEAD = do_OPTIONS = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the requests are kept in the site."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
