"""`python -m api`: uvicorn, by its own options, with the server of ``api.server.protocol``."""

import sys

import uvicorn

from api.server.protocol import Server

if __name__ == "__main__":
    sys.modules["uvicorn.main"].Server = Server  # type: ignore[attr-defined]  # what ``run`` makes
    uvicorn.main()
