"""Learning rates that change: `picograd.optim.lr_scheduler` is the page that lists them."""
