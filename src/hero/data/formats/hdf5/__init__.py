"""HDF5: a table of layouts, and the layouts that need code of their own."""
