"""Signed runs made one after the other, counted together: what a matrix of faults and a search are
made of.
"""
