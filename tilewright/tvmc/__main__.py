"""`python -m tilewright.tvmc`, and under its classic name `python -m tilewright.driver.tvmc`."""

from tilewright.tvmc.main import main

if __name__ == "__main__":
    main()
