"""What tests of several rooms use: commands, worlds, repositories, signed runs, forgeries."""
