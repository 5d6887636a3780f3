"""Everything that exists only because of the paper: its numbers, studies, shifts, costs, landscape, probe and theory.

Its parts are in the registries that users have too, so that it could live outside: nothing below imports it.
"""
