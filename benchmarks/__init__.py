"""Benchmarks: objectives, data sets, our solvers and their peers; one runner.

``python -m benchmarks --help`` says how to run them, ``docs/benchmarks.md`` what they show.
"""
