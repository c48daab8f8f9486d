"""`python -m tilewright`, and what the command `tilewright` calls."""

from .tvmc.app import app, main, with_target_options

__all__ = ["app", "main", "with_target_options"]

if __name__ == "__main__":
    main()
