"""From flat loop programs to machine code and to sources."""
