"""Tools around the compiler: compilers of the system, temporary folders, downloads, worker processes."""
