"""Changes one thing in the rules and emitters at a time, and counts how many of the changes the tests notice."""
