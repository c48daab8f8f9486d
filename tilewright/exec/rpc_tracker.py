"""`python -m tilewright.exec.rpc_tracker`: see `tilewright.rpc.tracker`."""

from ..rpc.tracker import main

if __name__ == "__main__":
    main()
