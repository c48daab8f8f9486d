"""`python -m tilewright.exec.query_rpc_tracker --host HOST --port PORT`: which servers a tracker has."""

from __future__ import annotations

import argparse
import os
import sys

from ..rpc.access import Access, add_options
from ..rpc.base import RPCError
from ..rpc.client import connect_tracker


def main(argv: list[str] | None = None) -> None:
    """Print what a tracker knows."""
    parser = argparse.ArgumentParser("query_rpc_tracker", description="Show the servers of a tracker.")
    parser.add_argument("--host", default=os.environ.get("TVM_TRACKER_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("TVM_TRACKER_PORT", "9190")))
    add_options(parser)
    given = parser.parse_args(argv)
    try:
        session = connect_tracker(given.host, given.port, access=Access.of(given))
        print(session.text_summary())
        session.close()
    except RPCError as error:
        sys.exit(f"query_rpc_tracker: {error}")


if __name__ == "__main__":
    main()
