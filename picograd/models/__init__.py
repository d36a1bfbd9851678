"""Networks, a file each, which picograd/train fits and users read."""
