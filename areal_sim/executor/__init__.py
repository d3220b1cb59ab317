"""Many simulations: in this process, on all cores, or on a Ray cluster; the same tasks, the same outcomes.

A task whose worker dies is tried again. With a journal every outcome is on disk as soon as it is there, and a
command that is started again repeats none of them.
"""
