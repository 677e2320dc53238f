"""How plainly the code is written, in figures beside those of four peers: `nox -s house`."""
