"""A run that `test_leftovers` interrupts: starts a service and waits for ever."""

import os
import signal
from pathlib import Path

from tests.live import Service, state_folder


def test_waits() -> None:
    with state_folder() as state:
        service = Service(state, STOWAGE_CONSOLE="here")
        process = service.launch(state.parent / "up.log")
        pids = [os.getpid(), process.pid, service.pid("postgres"), service.pid("redis")]
        file = Path(os.environ["LEAVING_BEHIND"])
        file.with_suffix(".new").write_text(" ".join(map(str, pids)))
        file.with_suffix(".new").rename(file)
        signal.pause()
