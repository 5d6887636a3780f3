"""Speed of our FNO next to its peers and the limits of the machine; `python -m benchmarks --help`."""
