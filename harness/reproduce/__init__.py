"""What leaves the machine a run was made on: bundles, runs made again from a report, and two runs
compared.
"""
