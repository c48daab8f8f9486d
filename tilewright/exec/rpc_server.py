"""`python -m tilewright.exec.rpc_server`: see `tilewright.rpc.server`."""

from ..rpc.server import main

if __name__ == "__main__":
    main()
