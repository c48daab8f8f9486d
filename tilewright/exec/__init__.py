"""Programs for the command line, under their classic names: `python -m tilewright.exec.rpc_server`."""
