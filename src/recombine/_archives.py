"""What reading a damaged zip archive can raise."""

from __future__ import annotations

import lzma
import zipfile
import zlib

# Each packing has its own; a flag turned over makes a file locked (RuntimeError), a name turned
# over no name at all (ValueError).
DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError,
)  # fmt: skip
