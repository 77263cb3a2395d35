"""A worker waits for its tasks without asking each second, and ends at once."""

import os
import signal
import threading
import time
from typing import Any

from kombu import Connection
from kombu.asynchronous import Hub, get_event_loop, set_event_loop

from clusterstate.settings import _broker
from scheduling.celery import app
from scheduling.processes import broker


def test_a_connection_that_waits_for_a_task_closes_at_once(servers: dict[str, str]) -> None:
    assert app.main == "stowage"  # it has named the transport
    began = time.monotonic()
    with Connection(_broker(servers["REDIS_URL"])) as connection:
        assert isinstance(connection.transport, broker.Transport)
        connection.SimpleQueue("nothing-comes").consumer.consume()
        connection.transport.cycle.on_poll_start()
        assert connection.default_channel._in_poll
    assert time.monotonic() - began < broker._ASK_SECONDS / 2


def test_a_signal_ends_the_wait_of_a_workers_loop() -> None:
    before, hub = get_event_loop(), Hub()
    handled = signal.signal(signal.SIGUSR1, lambda *_: broker.wake())
    read, write = os.pipe()
    try:
        set_event_loop(hub)
        hub.add_reader(read, lambda: None)
        loop: Any = hub.create_loop()
        hub.call_later(60.0, lambda: None)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        began = time.monotonic()
        next(loop)
        assert time.monotonic() - began < 30.0
    finally:
        signal.signal(signal.SIGUSR1, handled)
        set_event_loop(before)
        hub.close()
        os.close(read)
        os.close(write)
