"""Starters of our agent on another machine, and the files in which people name their machines."""
