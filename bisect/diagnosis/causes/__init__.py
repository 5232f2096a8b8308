"""The catalogue of known causes: one small declaration each, one file a family, or a few small
families that belong together.

To add a cause, add it to the file of its family; to add a family, add a file with `CAUSES` and
name it in catalogue.py. The first line of a file's docstring is the family's title in docs/causes/.
"""
