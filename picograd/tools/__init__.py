"""What people run beside their programs: pictures of graphs, the cache, a look at this machine, random tests."""
