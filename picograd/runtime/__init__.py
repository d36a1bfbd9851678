"""From a Plan and its Executables to results in memory: the walkers, thread pool and allocators of each device."""
