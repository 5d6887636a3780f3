"""HDF5: a table of layouts, and the layouts that need their own code."""
