"""The zoo: hangs that people reported, made to happen for real, each with its right answer.

A case is a file in scenarios/zoo/ (installed: the package's zoo_cases/); how to write one says the
README.md there. Nothing here is imported by the watch or by the diagnosis.
"""
