"""Functions of networks, by subject; `picograd.nn.functional` is the page that lists them."""
