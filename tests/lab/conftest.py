"""What the tests of the laboratory share: real child processes, forked and killed cheaply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from unlike.nursery import Nursery


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()
