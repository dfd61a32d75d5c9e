"""Somebody's code in a process of its own: asked in lines of JSON, timed, ended with all it began.

`talk` is the side that asks, `serving` the side that answers. Nothing here needs numpy, so that a
child starts as fast as Python does.
"""
