#!/bin/sh
# httpx 0.28.1.
# Guess: Response.iter_lines() of a watch (one JSON object a line) gives one object each time.
# Behaviour: it cuts wherever str.splitlines() does, also at U+2028, U+2029 and U+0085. JSON allows
# these within a string, and many encoders write them as they are; an object whose annotation has one
# comes in two pieces, neither of which is JSON.
# What the product does: its client splits the bytes of a watch at 0x0A alone (stowage/client/exchange.py).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "httpx==0.28.1"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys

import httpx

events = [
    {"type": "ADDED", "object": {"metadata": {"annotations": {"note": f"one{cut}two"}}}}
    for cut in ("\n", "\u2028", "\u2029", "\u0085")
]
body = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events).encode()
lines = list(httpx.Response(200, content=body).iter_lines())
print(f"{len(events)} events, {body.count(bytes([10]))} line feeds, {len(lines)} lines")
sys.exit(0 if len(lines) == 7 and len(body.splitlines()) == 4 else 1)
PYTHON
